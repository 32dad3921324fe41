"""Options of the section `train` that exclude or require each other."""

from jaxtrain.config.combinations import Feature, Incompatible, Needs, option
from jaxtrain.config.metadata import with_metadata
from jaxtrain.config.optimizer import (
    DISTANCE,
    LBFGS,
    LOOKAHEAD,
    ONE_AVERAGE,
    OWN_OPTIMIZER,
    SCHEDULE_FREE,
    OptimizerConfig,
)
from jaxtrain.config.parallel import NEW_STATISTICS, STAGES

METHOD = Feature("method", ("name",), "other than plain", "plain".__ne__)
SWA = option("train", "swa_start_epochs")
FROZEN_AT_FIRST = option("train", "freeze_epochs", "fine_tune")
COMBINATIONS = (
    Incompatible(
        METHOD,
        STAGES,
        "a method runs the full model, but a stage has only some of the layers",
        "set parallel.pipeline_stages to 1",
    ),
    Incompatible(
        METHOD,
        LBFGS,
        "the line search of lbfgs supports only method = 'plain'",
        "use another optimizer.name",
    ),
    Needs(
        option("train", "freeze_epochs"),
        option("train", "freeze", "fine_tune"),
        "set train.freeze to the layers to freeze, such as backbone",
    ),
    Incompatible(
        LBFGS,
        FROZEN_AT_FIRST,
        "the L-BFGS history of gradients and steps covers all layers",
        "leave train.freeze_epochs out, or use another optimizer.name",
    ),
    Incompatible(
        DISTANCE,
        FROZEN_AT_FIRST,
        "the optimizer estimates one learning rate for all layers, from the distance "
        "between the current and the initial weights",
        "leave train.freeze_epochs out, or use another optimizer.name",
    ),
    Incompatible(
        SCHEDULE_FREE,
        FROZEN_AT_FIRST,
        "the averaged weights would contain the initial weights of frozen layers for "
        "many steps",
        "leave train.freeze_epochs out, or use another optimizer.name",
    ),
    Incompatible(
        option("train", "ema_decay"),
        SWA,
        ONE_AVERAGE,
        "give only one of the two options",
    ),
    Incompatible(
        SCHEDULE_FREE,
        option("train", "ema_decay", "swa_start_epochs"),
        ONE_AVERAGE,
        "leave train.ema_decay and train.swa_start_epochs out",
    ),
    Incompatible(
        LOOKAHEAD,
        option("train", "ema_decay", "swa_start_epochs"),
        ONE_AVERAGE,
        "give only one of the two options",
    ),
    Incompatible(SWA, STAGES, NEW_STATISTICS, "use train.ema_decay"),
    Incompatible(
        LBFGS,
        option("train", "swa_factor"),
        "the line search of lbfgs chooses the step size",
        "leave train.swa_factor out",
    ),
    Needs(option("train", "swa_factor"), SWA),
    Incompatible(
        OWN_OPTIMIZER,
        FROZEN_AT_FIRST,
        "a custom optimizer may need the gradients of all layers together",
        "leave train.freeze_epochs out, or use a built-in optimizer",
    ),
    Incompatible(
        option(
            "optimizer",
            *with_metadata(OptimizerConfig, "set_by_fine_tune", inherit=False),
        ),
        option("train", "fine_tune"),
        "train.fine_tune sets a schedule of two cycles",
        "leave the optimizer option out, or set train.freeze, train.freeze_epochs and "
        "optimizer.layer_decay instead of train.fine_tune",
    ),
    Incompatible(
        option("train", "profile_steps"),
        STAGES,
        "the programs of the stages use the same instruction names, which a trace "
        "cannot distinguish",
        "profile with parallel.pipeline_stages = 1",
    ),
    Incompatible(
        option("train", "tta"),
        STAGES,
        "each view runs the full model, but a stage has only some of the layers",
        "leave train.tta out and give --tta to evaluate",
    ),
)

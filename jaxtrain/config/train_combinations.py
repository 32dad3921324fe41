"""Options of the section `train` that exclude or need each other."""

from jaxtrain.config import classification
from jaxtrain.config.combinations import Incompatible, Needs, option
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

METHOD = option("train", "method")
SWA = option("train", "swa_start_epochs")
FROZEN_AT_FIRST = option("train", "freeze_epochs", "fine_tune")
COMBINATIONS = (
    Incompatible(
        METHOD,
        STAGES,
        "a method needs passes of the whole model, of which each stage has a part",
        "set parallel.pipeline_stages to 1",
    ),
    Incompatible(
        METHOD,
        LBFGS,
        "the line search of lbfgs asks for the loss that the plain method lowers",
        "use another optimizer.name",
    ),
    Needs(option("train", "method_options"), METHOD, "leave them out"),
    *classification.COMBINATIONS,
    Needs(
        option("train", "freeze_epochs"),
        option("train", "freeze", "fine_tune"),
        "name the layers, such as backbone",
    ),
    Incompatible(
        LBFGS,
        FROZEN_AT_FIRST,
        "its memory of past gradients and steps is that of all layers",
        "leave train.freeze_epochs out, or use another optimizer.name",
    ),
    Incompatible(
        DISTANCE,
        FROZEN_AT_FIRST,
        "it estimates one rate for all layers, from how far all have moved with it",
        "leave train.freeze_epochs out, or use another optimizer.name",
    ),
    Incompatible(
        SCHEDULE_FREE,
        FROZEN_AT_FIRST,
        "its average would keep for long what these layers begin with",
        "leave train.freeze_epochs out, or use another optimizer.name",
    ),
    Incompatible(option("train", "ema_decay"), SWA, ONE_AVERAGE, "give one of both"),
    Incompatible(
        SCHEDULE_FREE,
        option("train", "ema_decay", "swa_start_epochs"),
        ONE_AVERAGE,
        "leave it out",
    ),
    Incompatible(
        LOOKAHEAD,
        option("train", "ema_decay", "swa_start_epochs"),
        ONE_AVERAGE,
        "give one of both",
    ),
    Incompatible(SWA, STAGES, NEW_STATISTICS, "use train.ema_decay"),
    Incompatible(
        LBFGS,
        option("train", "swa_factor"),
        "its line search finds the length of every step",
        "leave it out",
    ),
    Needs(option("train", "swa_factor"), SWA),
    Incompatible(
        OWN_OPTIMIZER,
        FROZEN_AT_FIRST,
        "an optimizer of your own may need the gradients of all layers together",
        "leave train.freeze_epochs out, or use one of the table",
    ),
    Incompatible(
        option("optimizer", *with_metadata(OptimizerConfig, "set_by_fine_tune")),
        option("train", "fine_tune"),
        "fine_tune has a schedule of its own, two cycles",
        "leave it out, or give train.freeze, train.freeze_epochs and "
        "optimizer.layer_decay in place of train.fine_tune",
    ),
    Incompatible(
        option("train", "profile_steps"),
        STAGES,
        "the programs of the stages have instructions of the same names, which a trace "
        "does not tell apart",
        "profile with parallel.pipeline_stages 1",
    ),
    Incompatible(
        option("train", "tta"),
        STAGES,
        "a view needs passes of the whole model, of which each stage has a part",
        "leave train.tta out and give --tta to evaluate",
    ),
)

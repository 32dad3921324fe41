"""Training: the step, its parts, and the tables of optimizers and schedules."""

from typing import Any

from jaxtrain.plugin import Table

_OPTIMIZERS, _SCHEDULES = "jaxtrain.training.optimizers", "jaxtrain.training.schedules"
_DISTANCE = "jaxtrain.training.distance_optimizers"
# Each value is a `jaxtrain.registry.Row`, or a function
# `(schedule, weight_decay, **options) -> optimizer`.
OPTIMIZERS: Table[Any] = Table(
    "optimizers",
    {
        "sgd": f"{_OPTIMIZERS}:SGD",
        "adam": f"{_OPTIMIZERS}:ADAM",
        "adamw": f"{_OPTIMIZERS}:ADAMW",
        "lamb": f"{_OPTIMIZERS}:LAMB",
        "lars": f"{_OPTIMIZERS}:LARS",
        "lion": f"{_OPTIMIZERS}:LION",
        "adan": f"{_OPTIMIZERS}:ADAN",
        "ademamix": f"{_OPTIMIZERS}:ADEMAMIX",
        "adopt": f"{_OPTIMIZERS}:ADOPT",
        "rmsprop": f"{_OPTIMIZERS}:RMSPROP",
        "adagrad": f"{_OPTIMIZERS}:ADAGRAD",
        "muon": f"{_OPTIMIZERS}:MUON",
        "sgdw": f"{_OPTIMIZERS}:SGDW",
        "schedule_free_sgd": f"{_OPTIMIZERS}:SCHEDULE_FREE_SGD",
        "schedule_free_adamw": f"{_OPTIMIZERS}:SCHEDULE_FREE_ADAMW",
        "prodigy": f"{_DISTANCE}:PRODIGY",
        "dadapt_adamw": f"{_DISTANCE}:DADAPT_ADAMW",
        "lbfgs": f"{_OPTIMIZERS}:LBFGS",
    },
)
# Each value is a `jaxtrain.registry.Row`, or a function
# `(peak, total_steps, warmup_steps, **options) -> schedule`.
SCHEDULES: Table[Any] = Table(
    "schedules",
    {
        "constant": f"{_SCHEDULES}:CONSTANT",
        "cosine": f"{_SCHEDULES}:COSINE",
        "cosine_restarts": f"{_SCHEDULES}:COSINE_RESTARTS",
        "linear": f"{_SCHEDULES}:LINEAR",
        "polynomial": f"{_SCHEDULES}:POLYNOMIAL",
        "warmup_stable_decay": f"{_SCHEDULES}:WARMUP_STABLE_DECAY",
        "step": f"{_SCHEDULES}:STEP",
        "exponential": f"{_SCHEDULES}:EXPONENTIAL",
        "one_cycle": f"{_SCHEDULES}:ONE_CYCLE",
        "plateau": f"{_SCHEDULES}:PLATEAU",
    },
)
# Precision policies by name, in the syntax of `jmp.get_policy`.
POLICIES = {
    "fp32": "params=float32,compute=float32,output=float32",
    # Tensor cores round the inputs of float32 products to 10 mantissa bits.
    "tf32": "params=float32,compute=float32,output=float32",
    "bf16": "params=float32,compute=bfloat16,output=float32",
    "fp16": "params=float32,compute=float16,output=float32",
    # Logits and loss stay float32.
    "pure_bf16": "params=bfloat16,compute=bfloat16,output=float32",
    "fp64": "params=float64,compute=float64,output=float64",
}

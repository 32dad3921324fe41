"""Config files of tiny runs."""

from pathlib import Path

from jaxtrain.config.root import SECTIONS

# Class of each task, method and model of a plug-in -> its plug-in.
PART_CLASSES = {
    "AdversarialConfig": "adversarial",
    "DeepLabConfig": "segmentation",
    "DetectionConfig": "detection",
    "DistillationConfig": "distillation",
    "EmbeddingConfig": "embedding",
    "FCOSConfig": "detection",
    "SegmentationConfig": "segmentation",
    "SelfSupervisedConfig": "self_supervised",
    "TradesConfig": "adversarial",
    "UNetConfig": "segmentation",
}


def write_recipe(path: Path, expression: str) -> Path:
    """Write a config file whose `get_config` returns the given expression."""
    sections = [one.split(":") for one in SECTIONS.references.values()]
    imports = [f"from {module} import {name}\n" for module, name in sections]
    imports += [
        f"from jaxtrain.plugins.{plugin}.options import {name}\n"
        for name, plugin in PART_CLASSES.items()
        if f"{name}(" in expression
    ]
    path.write_text(
        f"from jaxtrain.config import *\n{''.join(imports)}\n\ndef get_config():\n"
        f"    return {expression}\n"
    )
    return path


def recipe(**changes: str) -> str:
    """Return a config expression: a tiny run on the digits that takes seconds."""
    parts = {
        "data": 'DataConfig(source="digits", batch_size=64)',
        "model": 'ConvNetConfig(name="convnet", width=0.125, dropout=0.1)',
        "optimizer": "SGDConfig(learning_rate=0.1)",
        "train": "TrainConfig(steps=40, ema_decay=0.9)",
        "checkpoint": "CheckpointConfig(every_steps=10)",
        "logging": "LoggingConfig(every_steps=8)",
        **changes,
    }
    # It takes seconds, of hundreds of runs: tests of it ask for it.
    if "report=" not in parts["logging"]:
        parts["logging"] = parts["logging"].replace("(", "(report=False, ", 1)
    return "Config(" + ", ".join(f"{k}={v}" for k, v in parts.items()) + ")"


# Batch norm, dropout, momentum, an average of the weights; each save is evaluated.
EIGHT_STEPS = recipe(
    data='DataConfig(source="synthetic:8x8x1/4/96", batch_size=16)',
    optimizer="SGDConfig(learning_rate=0.1, momentum=0.9)",
    train="TrainConfig(steps=8, ema_decay=0.9, eval_every_steps=2)",
    checkpoint="CheckpointConfig(every_steps=2)",
    logging="LoggingConfig(every_steps=3, tensorboard=False)",
)

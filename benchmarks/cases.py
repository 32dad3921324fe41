"""The training steps that several scripts measure, by their names."""

from jaxtrain.config import (
    Config,
    DataConfig,
    ResNetConfig,
    SGDConfig,
    TrainConfig,
)

# Name -> images, examples a batch, model.
CASES = {
    "resnet50": ("224x224x3/1000", 128, ResNetConfig(name="resnet50")),
    "resnet50-64": ("64x64x3/1000", 32, ResNetConfig(name="resnet50")),
    "resnet18-cifar": ("32x32x3/10", 64, ResNetConfig(name="resnet18", stem="cifar")),
    "tiny": ("8x8x3/10", 8, ResNetConfig(name="resnet18", stem="cifar", width=0.125)),
}


def default_case(on_gpu: bool, tiny: bool) -> str:
    """Return the case that a device computes in well below a second."""
    if tiny:
        return "tiny"
    return "resnet50" if on_gpu else "resnet18-cifar"


def make_config(case: str, precision: str) -> Config:
    """Return the config of a case; its data are noise that is streamed."""
    images, batch_size, model = CASES[case]
    return Config(
        precision=precision,
        data=DataConfig(
            source=f"synthetic:{images}", batch_size=batch_size, cache="stream"
        ),
        model=model,
        optimizer=SGDConfig(learning_rate=0.1, momentum=0.9, weight_decay=1e-4),
        train=TrainConfig(steps=100),
    )

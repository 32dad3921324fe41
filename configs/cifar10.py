"""CIFAR-10, 32x32 colour, 10 classes: a two-block convnet in ten epochs.

    python main.py data --prepare tfds:cifar10
    python main.py --config configs/cifar10.py

Hardware, time and accuracy: unmeasured.
Data: 50,000 images (Krizhevsky 2009), 10 % of them held out for validation.
Recipe: as in a first tutorial: batch 32, SGD with a constant learning rate of 0.01
and momentum 0.9, ten epochs.
"""

from jaxtrain.config import (
    Config,
    ConvNetConfig,
    DataConfig,
    SGDConfig,
    TrainConfig,
)


def get_config() -> Config:
    return Config(
        data=DataConfig(source="tfds:cifar10", batch_size=32, eval_batch_size=500),
        model=ConvNetConfig(name="convnet"),
        optimizer=SGDConfig(learning_rate=0.01, momentum=0.9),
        train=TrainConfig(epochs=10),
    )

"""MNIST, 28x28 grey, 10 classes: LeNet-5.

    python main.py data --prepare tfds:mnist
    python main.py --config configs/mnist.py

Hardware, time and accuracy: unmeasured.
Data: 60,000 images, 10 % of them held out for validation.
Recipe: the network of LeCun et al. 1998, "Gradient-based learning applied to document
recognition", with ReLU, max pooling, and full connections between channels. Crop,
batch, optimizer, schedule and length are original to jaxtrain.
"""

from jaxtrain.config import (
    AdamConfig,
    AugmentConfig,
    Config,
    CosineSchedule,
    DataConfig,
    LeNetConfig,
    TrainConfig,
)


def get_config() -> Config:
    return Config(
        data=DataConfig(
            source="tfds:mnist",
            batch_size=128,
            eval_batch_size=500,
            augment=AugmentConfig(crop_padding=2),
        ),
        model=LeNetConfig(),
        optimizer=AdamConfig(
            learning_rate=2e-3, schedule=CosineSchedule(), warmup_fraction=1 / 15
        ),
        train=TrainConfig(epochs=15),
    )

"""CIFAR-10, 32x32 colour, 10 classes: ResNet-18 with the small stem.

    python main.py data --prepare tfds:cifar10
    python main.py --config configs/cifar10_resnet18.py

Hardware: one GPU. Time and accuracy: unmeasured.
Data: 50,000 images (Krizhevsky 2009), 10 % of them held out for validation.
Recipe: DeVries & Taylor (2017, arXiv:1708.04552) for this network: crops after padding
by 4 pixels, flips, cutout 16, batch 128, SGD with learning rate 0.1, Nesterov momentum
0.9 and weight decay 5e-4, 200 epochs. Differences: a cosine schedule with five epochs
of warm-up instead of three drops to a fifth, no decay of biases and norms, bfloat16.
"""

from jaxtrain.config import (
    AugmentConfig,
    Config,
    CosineSchedule,
    DataConfig,
    ResNetConfig,
    SGDConfig,
    TrainConfig,
)


def get_config() -> Config:
    return Config(
        precision="bf16",
        data=DataConfig(
            source="tfds:cifar10",
            batch_size=128,
            eval_batch_size=500,
            augment=AugmentConfig(crop_padding=4, horizontal_flip=True, cutout_size=16),
        ),
        model=ResNetConfig(name="resnet18", stem="cifar"),
        optimizer=SGDConfig(
            learning_rate=0.1,
            momentum=0.9,
            nesterov=True,
            weight_decay=5e-4,
            schedule=CosineSchedule(),
            warmup_fraction=5 / 200,
        ),
        train=TrainConfig(epochs=200),
    )

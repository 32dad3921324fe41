"""CIFAR-10, 32x32 colour, 10 classes: WRN-28-10 with cutout.

    python main.py data --prepare tfds:cifar10
    python main.py --config configs/cifar10_wide_resnet28_10.py

Hardware: one GPU. Time and accuracy: unmeasured.
Published: 96.92 % (DeVries & Taylor 2017, arXiv:1708.04552, table 1: 3.08 % errors).
Data: 50,000 images (Krizhevsky 2009), 10 % of them held out for validation.
Recipe: DeVries & Taylor's: crops after padding by 4 pixels, flips, cutout 16, batch
128, SGD with learning rate 0.1, drops to a fifth after epochs 60, 120 and 160 of 200,
Nesterov momentum 0.9, weight decay 5e-4, dropout 0.3 in the blocks. Differences: no
decay of biases and norms, bfloat16.
"""

from jaxtrain.config import (
    AugmentConfig,
    Config,
    DataConfig,
    SGDConfig,
    StepSchedule,
    TrainConfig,
    WideResNetConfig,
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
        model=WideResNetConfig(dropout=0.3),
        optimizer=SGDConfig(
            learning_rate=0.1,
            momentum=0.9,
            nesterov=True,
            weight_decay=5e-4,
            schedule=StepSchedule(milestones=(0.3, 0.6, 0.8), factor=0.2),
        ),
        train=TrainConfig(epochs=200),
    )

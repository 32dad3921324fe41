"""ImageNet, 224x224 colour, 1,000 classes: four convolutions, a simple baseline.

    python main.py data --prepare tfds:imagenet2012 --manual-dir DIR
    python main.py --config configs/imagenet_cnn4.py

Hardware: one GPU. Time and accuracy: unmeasured.
Data: 1,281,167 images (Russakovsky et al. 2015), the last 2 % held out for validation;
the test split is TFDS's validation split of 50,000 images.
Recipe: original to jaxtrain.
"""

from jaxtrain.config import (
    AdamWConfig,
    AugmentConfig,
    Config,
    ConvNetConfig,
    CosineSchedule,
    TrainConfig,
)
from jaxtrain.config.imagenet import imagenet


def get_config() -> Config:
    return Config(
        precision="bf16",
        data=imagenet(
            batch_size=256,
            augment=AugmentConfig(random_resized_crop=True, horizontal_flip=True),
        ),
        model=ConvNetConfig(name="cnn4"),
        optimizer=AdamWConfig(
            learning_rate=1e-3,
            weight_decay=0.05,
            schedule=CosineSchedule(),
            warmup_fraction=1 / 30,
        ),
        train=TrainConfig(epochs=30),
    )

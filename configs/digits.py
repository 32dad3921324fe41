"""Handwritten digits, 8x8 grey, 10 classes: the built-in data set, no download.

    python main.py --config configs/digits.py

Hardware: 2 CPU cores. Measured: 9 s, with compilation; test accuracy 0.997 (0.992 to
0.997 over four seeds, on 360 images).
Data: 1,797 images from scikit-learn (UCI Optical Recognition of Handwritten Digits).
Recipe: original to jaxtrain.
"""

from jaxtrain.config import (
    AdamWConfig,
    AugmentConfig,
    CheckpointConfig,
    Config,
    ConvNetConfig,
    CosineSchedule,
    DataConfig,
    LoggingConfig,
    TrainConfig,
)


def get_config() -> Config:
    return Config(
        data=DataConfig(
            source="digits",
            batch_size=64,
            augment=AugmentConfig(crop_padding=1),
        ),
        model=ConvNetConfig(name="convnet", dropout=0.2),
        optimizer=AdamWConfig(
            learning_rate=2e-3,
            weight_decay=0.05,
            schedule=CosineSchedule(),
            warmup_fraction=2 / 120,
        ),
        train=TrainConfig(epochs=120, eval_every_epochs=10),
        # Use the last checkpoint: 144 validation images are too few to select the best,
        # as checkpoints differ by one or two correct predictions.
        checkpoint=CheckpointConfig(every_epochs=10, keep_best=0),
        logging=LoggingConfig(every_steps=200),
    )

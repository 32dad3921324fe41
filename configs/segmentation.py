"""Garments on photographs, 64x64 colour: the class of each pixel, 11 of them.

    python -m tests.helpers.composed composed --masks --num 24000 --files FOLDER
    python main.py --config configs/segmentation.py

Hardware: 2 CPU cores that others used, too. Measured: MEASURED
Data: garments of Fashion-MNIST (Xiao et al. 2017, arXiv:1708.07747) composed on tiles
of scikit-learn's photographs: 24,000 training images, 10 % of them held out for
validation, and 2,400 to test.
"""

from jaxtrain.config import (
    AugmentConfig,
    Config,
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    TrainConfig,
)


def get_config() -> Config:
    return Config(
        task="segmentation",
        task_options={"loss": "cross_entropy_dice"},
        data=DataConfig(
            source="masks:composed",
            image_size=64,
            channels=3,
            batch_size=60,
            eval_batch_size=120,
            augment=AugmentConfig(horizontal_flip=True),
        ),
        model=ModelConfig(name="unet", width=0.25),
        optimizer=OptimizerConfig(
            name="muon",
            learning_rate=0.02,
            momentum=0.9,
            weight_decay=0.01,
            schedule="linear",
            warmup_fraction=0.1,
        ),
        train=TrainConfig(epochs=4, ema_decay=0.98),
    )

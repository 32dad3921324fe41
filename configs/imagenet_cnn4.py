"""ImageNet, 224x224 colour, 1,000 classes: four convolutions, a first plain baseline.

    python main.py data --prepare tfds:imagenet2012 --manual-dir DIR
    python main.py --config configs/imagenet_cnn4.py

Hardware: one GPU. Time and accuracy: unmeasured, the data is not at hand here.
Data: 1,281,167 images (Russakovsky et al. 2015), the last 2 % for validation; the test
is on the 50,000 images of TFDS's validation split.
Recipe: our own.
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
        precision="bf16",
        data=DataConfig(
            source="tfds:imagenet2012",
            train_split="train[:98%]",
            validation_split="train[98%:]",
            test_split="validation",
            batch_size=256,
            image_size=224,
            channels=3,
            mean=(0.485, 0.456, 0.406),
            std=(0.229, 0.224, 0.225),
            augment=AugmentConfig(random_resized_crop=True, horizontal_flip=True),
            cache="stream",
            workers=12,
        ),
        model=ModelConfig(name="cnn4"),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=1e-3,
            weight_decay=0.05,
            schedule="cosine",
            warmup_epochs=1,
        ),
        train=TrainConfig(epochs=30),
    )

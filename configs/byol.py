"""Fashion-MNIST, 28x28 grey, without its labels: features by two views of each image.

    python main.py data --prepare tfds:fashion_mnist
    python main.py --config configs/byol.py

Hardware: 2 CPU cores; unmeasured.
Data: 60,000 images (Xiao et al. 2017, arXiv:1708.07747), 10 % held out for validation.
Recipe: BYOL (Grill et al. 2020, arXiv:2006.07733) with the views and the optimizer of
configs/simclr.py, and a decay of the target that stays at 0.99.
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
        task="self_supervised",
        task_options={"loss": "byol", "size": 128, "projection_size": 64},
        data=DataConfig(
            source="tfds:fashion_mnist",
            image_size=28,
            batch_size=512,
            eval_batch_size=500,
            repeats=2,
            augment=AugmentConfig(
                random_resized_crop=True,
                crop_scale=(0.3, 1.0),
                horizontal_flip=True,
                brightness=0.4,
                contrast=0.4,
                jitter_probability=0.8,
                blur=0.3,
                blur_sigma=(0.1, 1.0),
            ),
        ),
        model=ModelConfig(name="whitened_cnn_small"),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=2e-3,
            weight_decay=1e-4,
            schedule="cosine",
            warmup_fraction=0.1,
        ),
        train=TrainConfig(epochs=3, ema_decay=0.99),
    )

"""Fashion-MNIST, 28x28 grey, without labels: features from two views of each image.

    python main.py data --prepare tfds:fashion_mnist
    python main.py --config configs/simclr.py

Hardware: 2 shared CPU cores. Measured: 10 min; a vote of the five nearest neighbours
among the 10,000 test images predicts the class with an accuracy of 0.777 (0.817 with
the raw pixels as features). The training is short, 315 steps on 81,000 pairs of views;
the paper trains for 100 epochs or more.
Data: 60,000 images (Xiao et al. 2017, arXiv:1708.07747), 10 % held out for validation.
Recipe: SimCLR (Chen et al. 2020, arXiv:2002.05709) with a temperature of 0.5, AdamW
instead of LARS, larger crops, and colour jitter of only brightness and contrast.
"""

from jaxtrain.config import (
    AdamWConfig,
    AugmentConfig,
    Config,
    CosineSchedule,
    DataConfig,
    TrainConfig,
    WhitenedCNNConfig,
)
from jaxtrain.plugins.self_supervised.options import SelfSupervisedConfig


def get_config() -> Config:
    return Config(
        task=SelfSupervisedConfig(loss="simclr", size=128, projection_size=64),
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
        model=WhitenedCNNConfig(name="whitened_cnn_small"),
        optimizer=AdamWConfig(
            learning_rate=2e-3,
            weight_decay=1e-4,
            schedule=CosineSchedule(),
            warmup_fraction=0.1,
        ),
        train=TrainConfig(epochs=3),
    )

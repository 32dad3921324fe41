"""Garments on photographs, 64x64 colour: boxes of 10 classes, one to four per image.

    python -m tests.helpers.composed_boxes composed --num 6000 --files FASHION_MNIST
    python main.py --config configs/detection.py

Hardware: 2 shared CPU cores. Measured: 27 min (8 min 50 s of CPU time), with
compilation; the best checkpoint by validation has a mean average precision on the 600
test images of 0.872 at an IoU of 0.5, and 0.750 averaged over IoUs from 0.5 to 0.95.
Data: garments of Fashion-MNIST (Xiao et al. 2017, arXiv:1708.07747) composed on tiles
of scikit-learn's photographs, in COCO format: 6,000 images for training, 600 for
validation and 600 for the test.
Recipe: original to jaxtrain: FCOS (Tian et al. 2020, arXiv:2006.09214) on a ResNet-18
of half the width, with small heads at strides 8 and 16, for objects of 28 pixels.
"""

from jaxtrain.config import (
    AdamWConfig,
    AugmentConfig,
    Config,
    CosineSchedule,
    DataConfig,
    TrainConfig,
)
from jaxtrain.plugins.detection.options import DetectionConfig, FCOSConfig


def get_config() -> Config:
    return Config(
        task=DetectionConfig(strides=(8, 16)),
        data=DataConfig(
            source="coco:composed",
            image_size=64,
            batch_size=64,
            # Pad instead of cropping, which could remove objects.
            crop_mode="border",
            augment=AugmentConfig(horizontal_flip=True),
        ),
        model=FCOSConfig(
            backbone="resnet18",
            width=0.5,
            pyramid_channels=64,
            head_layers=2,
        ),
        optimizer=AdamWConfig(
            learning_rate=3e-3,
            weight_decay=0.05,
            schedule=CosineSchedule(),
            warmup_fraction=1 / 10,
        ),
        train=TrainConfig(epochs=10),
    )

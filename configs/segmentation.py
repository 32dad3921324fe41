"""Garments on photographs, 64x64 colour: one of 11 classes for each pixel.

    python -m tests.helpers.composed composed --masks --num 60000 --files FOLDER
    python main.py --config configs/segmentation.py

Hardware: 2 shared CPU cores. Measured: 17 min (20 min 16 s of CPU time), with
compilation; the best checkpoint by validation has a mean IoU of 0.831 and a pixel
accuracy of 97.2 % on the 6,000 test images, and a mean IoU of 0.844 in validation. A
wider network and twice the epochs reach 0.854 (validation: 0.874), in 45 min of CPU
time:

    python main.py --config configs/segmentation.py --model.width 2 --train.epochs 4

Data: garments of Fashion-MNIST (Xiao et al. 2017, arXiv:1708.07747) composed on tiles
of scikit-learn's photographs: 60,000 training images, 10 % of them held out for
validation, and 6,000 to test.
Recipe: original to jaxtrain: a small U-Net with few decoder channels, whose encoder is
the network of configs/fashion_mnist_fast.py, with a resolution that suits objects of 28
pixels. An auxiliary head adds a loss on the encoder (deep supervision, Lee et al. 2014,
arXiv:1409.5185).
"""

from jaxtrain.config import (
    AugmentConfig,
    Config,
    DataConfig,
    LinearSchedule,
    MuonConfig,
    TrainConfig,
)
from jaxtrain.plugins.segmentation.options import SegmentationConfig, UNetConfig


def get_config() -> Config:
    return Config(
        task=SegmentationConfig(loss="cross_entropy_dice"),
        data=DataConfig(
            source="masks:composed",
            image_size=64,
            # Resize without a crop, so that the model is trained on all pixels.
            crop_mode="squash",
            channels=3,
            batch_size=60,
            eval_batch_size=120,
            augment=AugmentConfig(alternating_flip=True),
        ),
        model=UNetConfig(
            backbone="whitened_cnn_small",
            width=1.5,
            decoder_channels=(32, 16, 8),
            aux_weight=0.4,
        ),
        optimizer=MuonConfig(
            learning_rate=0.05,
            momentum=0.8,
            weight_decay=0.01,
            schedule=LinearSchedule(),
            warmup_fraction=0.1,
        ),
        train=TrainConfig(epochs=2, ema_decay=0.98),
    )

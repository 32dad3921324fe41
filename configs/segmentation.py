"""Garments on photographs, 64x64 colour: the class of each pixel, 11 of them.

    python -m tests.helpers.composed composed --masks --num 60000 --files FOLDER
    python main.py --config configs/segmentation.py

Hardware: 2 CPU cores that others used, too. Measured: 17 min, 20 min 16 s of CPU time,
compilation included; on the 6,000 test images, by the best validation, a mean IoU of
0.831, with 97.2 % of the pixels right; validation had 0.844. A wider network and twice
the epochs have 0.854, in 45 min of CPU time (validation 0.874):

    python main.py --config configs/segmentation.py --model.width 2 --train.epochs 4

Data: garments of Fashion-MNIST (Xiao et al. 2017, arXiv:1708.07747) composed on tiles
of scikit-learn's photographs: 60,000 training images, 10 % of them held out for
validation, and 6,000 to test.
Recipe: ours, a small U-Net over the network of configs/fashion_mnist_fast.py, which
keeps the features of things of 28 pixels. Its decoder has few channels, and the network
below it a head and a loss of its own (Lee et al. 2014, arXiv:1409.5185).
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
            # The whole image: a crop never shows what lies at its ends.
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

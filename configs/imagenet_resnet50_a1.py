"""ImageNet: ResNet-50 by A1, the longest procedure of "ResNet strikes back".

    python main.py data --prepare tfds:imagenet2012 --manual-dir DIR
    python main.py --config configs/imagenet_resnet50_a1.py

Hardware: 8 GPUs. Time and accuracy: unmeasured here, the data is not at hand.
Published: 80.4 % top-1 at 224x224 (Wightman et al. 2021, arXiv:2110.00476, table 2).
Data: 1,281,167 images (Russakovsky et al. 2015), the last 2 % for validation; the test
is on the 50,000 images of TFDS's validation split.
Recipe: their A1: 600 epochs of 1 / 3 of the images, each three times (repeated
augmentation), binary cross entropy, label smoothing 0.1, stochastic depth 0.05. A pair
that mixup or cutmix has mixed is of both classes: shares above 0.2 count whole. LAMB,
batch 2,048, cosine from 5e-3 to 1e-6 after five epochs of warm-up from 1e-4, decay
0.01. From timm's settings of it: the threshold, the ends of the schedule, gradients
clipped to a norm of 1. Our own: RandAugment's operations always of magnitude 21 of 30,
which is its 7 of 10, where timm applies each to one half of the images and varies the
magnitude; LAMB's trust ratio on biases and norms too; batch 2,016 in place of 2,048,
which 8 GPUs share in pairs of examples three times each; bfloat16.
"""

from jaxtrain.config import (
    AugmentConfig,
    ClassificationConfig,
    Config,
    CosineSchedule,
    LambConfig,
    ParallelConfig,
    ResNetConfig,
    TrainConfig,
)
from jaxtrain.config.imagenet import imagenet


def get_config() -> Config:
    return Config(
        precision="bf16",
        data=imagenet(
            batch_size=2016,
            repeats=3,
            crop_pct=0.95,
            interpolation="bicubic",
            augment=AugmentConfig(
                random_resized_crop=True,
                horizontal_flip=True,
                randaugment=2,
                randaugment_magnitude=21,
                mixup=0.2,
                cutmix=1.0,
            ),
        ),
        model=ResNetConfig(name="resnet50", drop_path=0.05),
        parallel=ParallelConfig(batch_norm=252, xla_flags="overlap"),
        optimizer=LambConfig(
            learning_rate=5e-3,
            weight_decay=0.01,
            # timm's LAMB does so by itself.
            clip_norm=1.0,
            schedule=CosineSchedule(warmup_factor=1e-4 / 5e-3, end_factor=1e-6 / 5e-3),
            warmup_fraction=5 / 600,
            # From 1e-4, and down to 1e-6.
        ),
        train=TrainConfig(epochs=600),
        task=ClassificationConfig(
            label_smoothing=0.1, loss="binary_cross_entropy", target_threshold=0.2
        ),
    )

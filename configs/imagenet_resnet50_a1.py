"""ImageNet: ResNet-50 by A1, the longest procedure of "ResNet strikes back".

    python main.py data --prepare tfds:imagenet2012 --manual-dir DIR
    python main.py --config configs/imagenet_resnet50_a1.py

Hardware: 8 GPUs. Time and accuracy: unmeasured.
Published: 80.4 % top-1 at 224x224 (Wightman et al. 2021, arXiv:2110.00476, table 2).
Data: 1,281,167 images (Russakovsky et al. 2015), the last 2 % held out for validation;
the test split is TFDS's validation split of 50,000 images.
Recipe: A1: 600 epochs with repeated augmentation (a third of the images, three copies
each), binary cross entropy, label smoothing 0.1, stochastic depth 0.05. Targets of
pairs mixed by mixup or CutMix are thresholded at 0.2, so a pair has both classes. LAMB,
batch 2,048, cosine from 5e-3 to 1e-6 after five epochs of warm-up from 1e-4, weight
decay 0.01. From timm's settings for A1: the target threshold, the first and last
learning rate, and gradient clipping to norm 1. Differences: RandAugment applies every
operation at magnitude 21 of 30 (7 of 10 in timm), whereas timm applies each with
probability 0.5 and varies the magnitude; LAMB's trust ratio also scales biases and
norms; batch 2,016 instead of 2,048, because each of 8 GPUs needs a multiple of six
examples (mixed pairs, three copies each); bfloat16.
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
            # timm's LAMB clips to norm 1 by default.
            clip_norm=1.0,
            schedule=CosineSchedule(warmup_factor=1e-4 / 5e-3, end_factor=1e-6 / 5e-3),
            warmup_fraction=5 / 600,
        ),
        train=TrainConfig(epochs=600),
        task=ClassificationConfig(
            label_smoothing=0.1, loss="binary_cross_entropy", target_threshold=0.2
        ),
    )

"""ImageNet: ResNet-50 as torchvision's second weights were trained.

    python main.py data --prepare tfds:imagenet2012 --manual-dir DIR
    python main.py --config configs/imagenet_resnet50_torchvision_v2.py

Hardware: 8 GPUs. Time and accuracy: unmeasured.
Published: 80.858 % top-1 (torchvision, ResNet50_Weights.IMAGENET1K_V2).
Data: 1,281,167 images (Russakovsky et al. 2015), the last 2 % held out for validation;
the test split is TFDS's validation split of 50,000 images.
Recipe: https://github.com/pytorch/vision/issues/3995: 600 epochs with repeated
augmentation (a quarter of the images, four copies each), on 176x176 pixels;
TrivialAugment, random erasing 0.1, mixup 0.2 or CutMix 1, label smoothing 0.1; SGD with
learning rate 0.5 for batch 1,024, cosine after five epochs of warm-up from a hundredth,
momentum 0.9, weight decay 2e-5 except on norms; EMA of the weights; evaluation on the
central 224 of 232 pixels. Differences: the EMA is updated in every step instead of
every 32nd, with the 32nd root of torchvision's decay, 1 - 2e-5 x 1,024 x 32 / 600; the
scale of the last norm of each block starts at 0 instead of 1; bfloat16.
"""

from jaxtrain.config import (
    AugmentConfig,
    ClassificationConfig,
    Config,
    CosineSchedule,
    ParallelConfig,
    ResNetConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.config.imagenet import imagenet


def get_config() -> Config:
    return Config(
        precision="bf16",
        data=imagenet(
            batch_size=1024,
            repeats=4,
            train_image_size=176,
            crop_pct=224 / 232,
            augment=AugmentConfig(
                random_resized_crop=True,
                horizontal_flip=True,
                trivialaugment=True,
                erasing=0.1,
                mixup=0.2,
                cutmix=1.0,
            ),
        ),
        model=ResNetConfig(name="resnet50"),
        parallel=ParallelConfig(batch_norm=128, xla_flags="overlap"),
        optimizer=SGDConfig(
            learning_rate=0.5,
            momentum=0.9,
            weight_decay=2e-5,
            schedule=CosineSchedule(warmup_factor=0.01),
            warmup_fraction=5 / 600,
        ),
        train=TrainConfig(epochs=600, ema_decay=0.999966),
        task=ClassificationConfig(label_smoothing=0.1),
    )

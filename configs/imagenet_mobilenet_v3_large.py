"""ImageNet: MobileNetV3-Large in 600 epochs.

    python main.py data --prepare tfds:imagenet2012 --manual-dir DIR
    python main.py --config configs/imagenet_mobilenet_v3_large.py

Hardware: 8 GPUs. Time and accuracy: unmeasured.
Published: 74.042 % top-1 (torchvision, MobileNet_V3_Large_Weights.IMAGENET1K_V1), with
the mean of the last three checkpoints that improved; this recipe does not average them.
Data: 1,281,167 images (Russakovsky et al. 2015), the last 2 % held out for validation;
the test split is TFDS's validation split of 50,000 images.
Recipe: torchvision's reference scripts ("MobileNetV3 Large & Small",
https://github.com/pytorch/vision/tree/main/references/classification): RMSProp with
learning rate 0.064 for batch 1,024, times 0.973 every two of 600 epochs, momentum 0.9,
weight decay 1e-5, random erasing 0.2, batch-norm epsilon 1e-3. Differences: RandAugment
instead of AutoAugment, which jaxtrain lacks; RMSProp's epsilon is 1e-3 inside the
square root instead of sqrt(1e-3) outside; batch-norm momentum 0.9 instead of 0.99; no
decay of biases and norms; bfloat16.
"""

from jaxtrain.config import (
    AugmentConfig,
    Config,
    MobileNetConfig,
    ParallelConfig,
    RMSpropConfig,
    StepSchedule,
    TrainConfig,
)
from jaxtrain.config.imagenet import imagenet


def get_config() -> Config:
    return Config(
        precision="bf16",
        data=imagenet(
            batch_size=1024,
            augment=AugmentConfig(
                random_resized_crop=True,
                horizontal_flip=True,
                randaugment=2,
                erasing=0.2,
            ),
        ),
        model=MobileNetConfig(
            name="mobilenet_v3_large", dropout=0.2, norm_epsilon=1e-3
        ),
        parallel=ParallelConfig(batch_norm=128, xla_flags="overlap"),
        optimizer=RMSpropConfig(
            learning_rate=0.064,
            b2=0.9,
            momentum=0.9,
            eps=1e-3,
            weight_decay=1e-5,
            schedule=StepSchedule(every=2 / 600, factor=0.973),
        ),
        train=TrainConfig(epochs=600),
    )

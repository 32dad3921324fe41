"""ImageNet: EfficientNet-B0 in 450 epochs.

    python main.py data --prepare tfds:imagenet2012 --manual-dir DIR
    python main.py --config configs/imagenet_efficientnet_b0.py

Hardware: 8 GPUs. Time and accuracy: unmeasured.
Published: 77.7 % top-1 at 224x224 (timm, efficientnet_b0.ra_in1k). torchvision adopted
these weights, and measures 77.692 %. Tan & Le (2019, arXiv:1905.11946) report 77.1 %.
Data: 1,281,167 images (Russakovsky et al. 2015), the last 2 % held out for validation;
the test split is TFDS's validation split of 50,000 images.
Recipe: timm's (https://huggingface.co/docs/timm/training_script, "EfficientNet-B0 with
RandAugment"): RMSProp with learning rate 0.048 for batch 768, times 0.97 every 2.4
epochs, three epochs of warm-up from 1e-6, weight decay 1e-5, RandAugment 9, random
erasing 0.2 with noise, label smoothing 0.1, dropout and stochastic depth 0.2, EMA of
the weights with decay 0.9999. Differences: eight GPUs instead of two, with batch norm
over groups of 96; RandAugment applies every operation at magnitude 27 of 30 (9 of 10 in
timm), whereas timm applies each with probability 0.5 and varies the magnitude;
RMSProp's second moment starts at 0 instead of 1; bfloat16.
"""

from jaxtrain.config import (
    AugmentConfig,
    ClassificationConfig,
    Config,
    EfficientNetConfig,
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
            batch_size=768,
            interpolation="bicubic",
            augment=AugmentConfig(
                random_resized_crop=True,
                horizontal_flip=True,
                randaugment=2,
                randaugment_magnitude=27,
                erasing=0.2,
                erasing_value="noise",
            ),
        ),
        model=EfficientNetConfig(name="efficientnet_b0", dropout=0.2, drop_path=0.2),
        parallel=ParallelConfig(batch_norm=96, xla_flags="overlap"),
        optimizer=RMSpropConfig(
            learning_rate=0.048,
            b2=0.9,
            momentum=0.9,
            eps=1e-3,
            weight_decay=1e-5,
            schedule=StepSchedule(
                every=2.4 / 450, factor=0.97, warmup_factor=1e-6 / 0.048
            ),
            warmup_fraction=3 / 450,
        ),
        train=TrainConfig(epochs=450, ema_decay=0.9999),
        task=ClassificationConfig(label_smoothing=0.1),
    )

"""ImageNet: ConvNeXt-T in 300 epochs.

    python main.py data --prepare tfds:imagenet2012 --manual-dir DIR
    python main.py --config configs/imagenet_convnext_tiny.py

Hardware: 8 GPUs, 128 images each at once. Time and accuracy: unmeasured here, the data
is not at hand.
Published: 82.1 % top-1 at 224x224 (Liu et al. 2022, arXiv:2201.03545). torchvision's
own weights, of another recipe, have 82.520 %.
Data: 1,281,167 images (Russakovsky et al. 2015), the last 2 % for validation; the test
is on the 50,000 images of TFDS's validation split.
Recipe: theirs (table 5): AdamW with learning rate 4e-3 for batch 4,096, cosine to 1e-6
after 20 epochs of warm-up, weight decay 0.05, none of vectors; RandAugment 9, erasing
0.25 with noise, mixup 0.8 or cutmix 1, label smoothing 0.1, stochastic depth 0.1, an
average of the weights of 0.9999, bicubic. Our own: RandAugment's operations always of
magnitude 27 of 30, which is its 9 of 10, where they apply each to one half of the
images and vary the magnitude; bfloat16.
"""

from jaxtrain.config import (
    AdamWConfig,
    AugmentConfig,
    ClassificationConfig,
    Config,
    ConvNeXtConfig,
    CosineSchedule,
    TrainConfig,
)
from jaxtrain.config.imagenet import imagenet


def get_config() -> Config:
    return Config(
        precision="bf16",
        data=imagenet(
            batch_size=4096,
            eval_batch_size=1024,
            interpolation="bicubic",
            augment=AugmentConfig(
                random_resized_crop=True,
                horizontal_flip=True,
                randaugment=2,
                randaugment_magnitude=27,
                erasing=0.25,
                erasing_value="noise",
                mixup=0.8,
                cutmix=1.0,
            ),
        ),
        model=ConvNeXtConfig(name="convnext_tiny", drop_path=0.1),
        optimizer=AdamWConfig(
            learning_rate=4e-3,
            weight_decay=0.05,
            schedule=CosineSchedule(end_factor=1e-6 / 4e-3),
            warmup_fraction=20 / 300,
        ),
        train=TrainConfig(epochs=300, ema_decay=0.9999, accumulate_steps=4),
        task=ClassificationConfig(label_smoothing=0.1),
    )

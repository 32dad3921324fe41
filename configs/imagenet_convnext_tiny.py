"""ImageNet: ConvNeXt-T in 300 epochs.

    python main.py data --prepare tfds:imagenet2012 --manual-dir DIR
    python main.py --config configs/imagenet_convnext_tiny.py

Hardware: 8 GPUs, 128 images per GPU in each micro-batch. Time and accuracy: unmeasured.
Published: 82.1 % top-1 at 224x224 (Liu et al. 2022, arXiv:2201.03545). torchvision's
weights, trained with another recipe, have 82.520 %.
Data: 1,281,167 images (Russakovsky et al. 2015), the last 2 % held out for validation;
the test split is TFDS's validation split of 50,000 images.
Recipe: Liu et al. (table 5): AdamW with learning rate 4e-3 for batch 4,096, cosine to
1e-6 after 20 epochs of warm-up, weight decay 0.05 except on biases and norms;
RandAugment 9, random erasing 0.25 with noise, mixup 0.8 or CutMix 1, label smoothing
0.1, stochastic depth 0.1, EMA of the weights with decay 0.9999, bicubic interpolation.
Differences: RandAugment applies every operation at magnitude 27 of 30 (9 of 10 in the
paper), whereas the paper applies each with probability 0.5 and varies the magnitude;
bfloat16.
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

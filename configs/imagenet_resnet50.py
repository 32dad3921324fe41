"""ImageNet, 224x224 colour, 1,000 classes: ResNet-50 v1.5 in 90 epochs.

    python main.py data --prepare tfds:imagenet2012 --manual-dir DIR
    python main.py --config configs/imagenet_resnet50.py

Hardware: 8 GPUs. Time and accuracy: unmeasured.
Data: 1,281,167 images (Russakovsky et al. 2015), the last 2 % held out for validation;
the test split is TFDS's validation split of 50,000 images.
Recipe: Goyal et al. (2017, arXiv:1706.02677): learning rate 0.1 per 256 examples, five
epochs of warm-up, batch norm over groups of 32, Nesterov momentum 0.9, weight decay
1e-4, 90 epochs. From He et al. (2018, arXiv:1812.01187): batch 1,024, warm-up from 0,
no decay of biases and norms, a cosine schedule instead of three drops to a tenth, label
smoothing. Difference: bfloat16 instead of float16.
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
            augment=AugmentConfig(random_resized_crop=True, horizontal_flip=True),
        ),
        model=ResNetConfig(name="resnet50"),
        parallel=ParallelConfig(batch_norm=32, xla_flags="overlap"),
        optimizer=SGDConfig(
            learning_rate=0.4,
            momentum=0.9,
            nesterov=True,
            weight_decay=1e-4,
            schedule=CosineSchedule(),
            warmup_fraction=5 / 90,
        ),
        train=TrainConfig(epochs=90),
        task=ClassificationConfig(label_smoothing=0.1),
    )

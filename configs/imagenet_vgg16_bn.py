"""ImageNet: VGG-16 with batch norm as torchvision's weights were trained.

    python main.py data --prepare tfds:imagenet2012 --manual-dir DIR
    python main.py --config configs/imagenet_vgg16_bn.py

Hardware: 8 GPUs. Time and accuracy: unmeasured.
Published: 73.360 % top-1 (torchvision, VGG16_BN_Weights.IMAGENET1K_V1).
Data: 1,281,167 images (Russakovsky et al. 2015), the last 2 % held out for validation;
the test split is TFDS's validation split of 50,000 images.
Recipe: torchvision's reference scripts ("AlexNet and VGG",
https://github.com/pytorch/vision/tree/main/references/classification): batch 256, SGD
with learning rate 0.1, drops to a tenth every 30 of 90 epochs, momentum 0.9, weight
decay 1e-4, batch norm over the 32 images of each GPU. Difference: no decay of biases
and norms.
"""

from jaxtrain.config import (
    AugmentConfig,
    Config,
    ParallelConfig,
    SGDConfig,
    StepSchedule,
    TrainConfig,
    VGGConfig,
)
from jaxtrain.config.imagenet import imagenet


def get_config() -> Config:
    return Config(
        data=imagenet(
            batch_size=256,
            augment=AugmentConfig(random_resized_crop=True, horizontal_flip=True),
        ),
        model=VGGConfig(name="vgg16_bn"),
        parallel=ParallelConfig(batch_norm=32, xla_flags="overlap"),
        optimizer=SGDConfig(
            learning_rate=0.1,
            momentum=0.9,
            weight_decay=1e-4,
            schedule=StepSchedule(milestones=(1 / 3, 2 / 3)),
        ),
        train=TrainConfig(epochs=90),
    )

"""ImageNet, 299x299: Inception v3 in 170 epochs.

    python main.py data --prepare tfds:imagenet2012 --manual-dir DIR
    python main.py --config configs/imagenet_inception_v3.py

Hardware: 8 GPUs. Time and accuracy: unmeasured.
Published: 78.1 % top-1 in about 170 epochs
(https://cloud.google.com/tpu/docs/inception-v3-advanced). torchvision's weights,
77.294 %, were converted from TensorFlow.
Data: 1,281,167 images (Russakovsky et al. 2015), the last 2 % held out for validation;
the test split is TFDS's validation split of 50,000 images.
Recipe: https://github.com/tensorflow/tpu (models/experimental/inception), which trains
synchronously; Szegedy et al. (2015, arXiv:1512.00567) train asynchronously on 50
machines. RMSProp with learning rate 0.66 for batch 1,024, times 0.94 every three
epochs, momentum 0.9, epsilon 1, weight decay 4e-5; label smoothing 0.1, dropout 0.2,
auxiliary loss weight 0.4, EMA of the weights with decay 0.995; random crops of at least
5 % of the area, colour jitter. Differences: RMSProp's second moment starts at 0 instead
of 1; batch-norm momentum 0.9 instead of 0.996; brightness jitter multiplies instead of
adding; bfloat16.
"""

from jaxtrain.config import (
    AugmentConfig,
    ClassificationConfig,
    Config,
    InceptionConfig,
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
            image_size=299,
            mean=(0.5, 0.5, 0.5),
            std=(0.5, 0.5, 0.5),
            augment=AugmentConfig(
                random_resized_crop=True,
                crop_scale=(0.05, 1.0),
                horizontal_flip=True,
                brightness=32 / 255,
                contrast=0.5,
                saturation=0.5,
                hue=0.2,
            ),
        ),
        model=InceptionConfig(name="inception_v3", dropout=0.2, aux_weight=0.4),
        parallel=ParallelConfig(batch_norm=128, xla_flags="overlap"),
        optimizer=RMSpropConfig(
            learning_rate=0.66,
            b2=0.9,
            momentum=0.9,
            eps=1.0,
            weight_decay=4e-5,
            schedule=StepSchedule(every=3 / 170, factor=0.94),
        ),
        train=TrainConfig(epochs=170, ema_decay=0.995),
        task=ClassificationConfig(label_smoothing=0.1),
    )

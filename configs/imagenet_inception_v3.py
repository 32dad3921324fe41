"""ImageNet, 299x299: Inception v3 in 170 epochs.

    python main.py data --prepare tfds:imagenet2012 --manual-dir DIR
    python main.py --config configs/imagenet_inception_v3.py

Hardware: 8 GPUs. Time and accuracy: unmeasured here, the data is not at hand.
Published: 78.1 % top-1 in about 170 epochs
(https://cloud.google.com/tpu/docs/inception-v3-advanced). The weights of torchvision,
77.294 %, were taken over from TensorFlow; it trained none.
Data: 1,281,167 images (Russakovsky et al. 2015), the last 2 % for validation; the test
is on the 50,000 images of TFDS's validation split.
Recipe: that of https://github.com/tensorflow/tpu (models/experimental/inception), where
one batch is a step; Szegedy et al. (2015, arXiv:1512.00567) let 50 machines change the
weights as each had finished. RMSprop with learning rate 0.66 for batch 1,024, times
0.94 every three epochs, momentum 0.9, epsilon 1, weight decay 4e-5; label smoothing
0.1, dropout 0.2, the auxiliary head weighs 0.4, an average of the weights of 0.995;
windows from 5 % of the area, other colours. Our own: RMSprop's sum begins at 0 and not
at 1; running statistics keep 0.9 in a step and not 0.996; brightness is a factor, and
not added; bfloat16.
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

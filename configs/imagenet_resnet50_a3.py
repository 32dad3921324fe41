"""ImageNet: ResNet-50 by A3, the shortest procedure of "ResNet strikes back".

    python main.py data --prepare tfds:imagenet2012 --manual-dir DIR
    python main.py --config configs/imagenet_resnet50_a3.py

Hardware: 8 GPUs. Time and accuracy: unmeasured here, the data is not at hand.
Published: 78.1 % top-1 at 224x224 (Wightman et al. 2021, arXiv:2110.00476, table 2).
Data: 1,281,167 images (Russakovsky et al. 2015), the last 2 % for validation; the test
is on the 50,000 images of TFDS's validation split.
Recipe: their A3: 100 epochs on images of 160x160, binary cross entropy; evaluated on
224x224. A pair that mixup or cutmix has mixed is of both classes: shares above 0.2
count whole. LAMB, batch 2,048, cosine from 8e-3 to 1e-6 after five epochs of warm-up
from 1e-4, decay 0.02. From timm's settings of it: the threshold, the ends of the
schedule, gradients clipped to a norm of 1. Our own: RandAugment's operations always of
magnitude 18 of 30, which is its 6 of 10, where timm applies each to one half of the
images and varies the magnitude; LAMB's trust ratio on biases and norms too; bfloat16.
"""

from dataclasses import replace

import imagenet_resnet50_a1

from jaxtrain.config import Config, CosineSchedule


def get_config() -> Config:
    a1 = imagenet_resnet50_a1.get_config()
    augment = replace(a1.data.augment, randaugment_magnitude=18, mixup=0.1)
    return replace(
        a1,
        data=replace(
            a1.data, batch_size=2048, repeats=1, train_image_size=160, augment=augment
        ),
        model=replace(a1.model, drop_path=None),
        parallel=replace(a1.parallel, batch_norm=256),
        optimizer=replace(
            a1.optimizer,
            learning_rate=8e-3,
            weight_decay=0.02,
            warmup_fraction=5 / 100,
            # From 1e-4, and down to 1e-6.
            schedule=CosineSchedule(warmup_factor=1e-4 / 8e-3, end_factor=1e-6 / 8e-3),
        ),
        train=replace(a1.train, epochs=100),
        task=replace(a1.task, label_smoothing=0.0),
    )

"""ImageNet: ResNet-50 by A3, the shortest procedure of "ResNet strikes back".

    python main.py data --prepare tfds:imagenet2012 --manual-dir DIR
    python main.py --config configs/imagenet_resnet50_a3.py

Hardware: 8 GPUs. Time and accuracy: unmeasured.
Published: 78.1 % top-1 at 224x224 (Wightman et al. 2021, arXiv:2110.00476, table 2).
Data: 1,281,167 images (Russakovsky et al. 2015), the last 2 % held out for validation;
the test split is TFDS's validation split of 50,000 images.
Recipe: A3: 100 epochs on images of 160x160, binary cross entropy; evaluation at
224x224. Targets of pairs mixed by mixup or CutMix are thresholded at 0.2, so a pair has
both classes. LAMB, batch 2,048, cosine from 8e-3 to 1e-6 after five epochs of warm-up
from 1e-4, weight decay 0.02. From timm's settings for A3: the target threshold, the
first and last learning rate, and gradient clipping to norm 1. Differences: RandAugment
applies every operation at magnitude 18 of 30 (6 of 10 in timm), whereas timm applies
each with probability 0.5 and varies the magnitude; LAMB's trust ratio also scales
biases and norms; bfloat16.
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
            # Learning rate from 1e-4 in the warm-up, and to 1e-6 at the end.
            schedule=CosineSchedule(warmup_factor=1e-4 / 8e-3, end_factor=1e-6 / 8e-3),
        ),
        train=replace(a1.train, epochs=100),
        task=replace(a1.task, label_smoothing=0.0),
    )

"""ImageNet: ResNet-50 by A2, the procedure of "ResNet strikes back" in 300 epochs.

    python main.py data --prepare tfds:imagenet2012 --manual-dir DIR
    python main.py --config configs/imagenet_resnet50_a2.py

Hardware: 8 GPUs. Time and accuracy: unmeasured here, the data is not at hand.
Published: 79.8 % top-1 at 224x224 (Wightman et al. 2021, arXiv:2110.00476, table 2).
Data: 1,281,167 images (Russakovsky et al. 2015), the last 2 % for validation; the test
is on the 50,000 images of TFDS's validation split.
Recipe: their A2: 300 epochs of 1 / 3 of the images, each three times (repeated
augmentation), binary cross entropy, stochastic depth 0.05. A pair that mixup or cutmix
has mixed is of both classes: shares above 0.2 count whole. LAMB, batch 2,048, cosine
from 5e-3 to 1e-6 after five epochs of warm-up from 1e-4, decay 0.02. From timm's
settings of it: the threshold, the ends of the schedule, gradients clipped to a norm of
1. Our own: RandAugment's operations always of magnitude 21 of 30, which is its 7 of 10,
where timm applies each to one half of the images and varies the magnitude; LAMB's trust
ratio on biases and norms too; batch 2,016 in place of 2,048, which 8 GPUs share in
pairs of examples three times each; bfloat16.
"""

from dataclasses import replace

import imagenet_resnet50_a1

from jaxtrain.config import Config


def get_config() -> Config:
    a1 = imagenet_resnet50_a1.get_config()
    augment = replace(a1.data.augment, mixup=0.1)
    return replace(
        a1,
        data=replace(a1.data, augment=augment),
        optimizer=replace(a1.optimizer, weight_decay=0.02, warmup_fraction=5 / 300),
        train=replace(a1.train, epochs=300),
        task=replace(a1.task, label_smoothing=0.0),
    )

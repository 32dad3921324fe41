"""ImageNet: ResNet-50 by A2, the procedure of "ResNet strikes back" in 300 epochs.

    python main.py data --prepare tfds:imagenet2012 --manual-dir DIR
    python main.py --config configs/imagenet_resnet50_a2.py

Hardware: 8 GPUs. Time and accuracy: unmeasured.
Published: 79.8 % top-1 at 224x224 (Wightman et al. 2021, arXiv:2110.00476, table 2).
Data: 1,281,167 images (Russakovsky et al. 2015), the last 2 % held out for validation;
the test split is TFDS's validation split of 50,000 images.
Recipe: A2: 300 epochs with repeated augmentation (a third of the images, three copies
each), binary cross entropy, stochastic depth 0.05. Targets of pairs mixed by mixup or
CutMix are thresholded at 0.2, so a pair has both classes. LAMB, batch 2,048, cosine
from 5e-3 to 1e-6 after five epochs of warm-up from 1e-4, weight decay 0.02. From timm's
settings for A2: the target threshold, the first and last learning rate, and gradient
clipping to norm 1. Differences: RandAugment applies every operation at magnitude 21 of
30 (7 of 10 in timm), whereas timm applies each with probability 0.5 and varies the
magnitude; LAMB's trust ratio also scales biases and norms; batch 2,016 instead of
2,048, because each of 8 GPUs needs a multiple of six examples (mixed pairs, three
copies each); bfloat16.
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

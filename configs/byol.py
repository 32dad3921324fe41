"""Fashion-MNIST, 28x28 grey, without labels: features from two views of each image.

    python main.py data --prepare tfds:fashion_mnist
    python main.py --config configs/byol.py

Hardware: 2 CPU cores. Time and accuracy: unmeasured.
Data: 60,000 images (Xiao et al. 2017, arXiv:1708.07747), 10 % held out for validation.
Recipe: BYOL (Grill et al. 2020, arXiv:2006.07733) with the augmentation and optimizer
of configs/simclr.py; the EMA decay of the target network is constant, 0.99.
"""

from dataclasses import replace

import simclr

from jaxtrain.config import Config


def get_config() -> Config:
    config = simclr.get_config()
    return replace(
        config,
        task=replace(config.task, loss="byol"),
        train=replace(config.train, ema_decay=0.99),
    )

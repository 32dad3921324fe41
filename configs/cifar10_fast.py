"""CIFAR-10, 32x32 colour, 10 classes: network and methods of the speed records.

    python main.py data --prepare tfds:cifar10
    python main.py --config configs/cifar10_fast.py
    python main.py evaluate --workdir runs/cifar10_fast --tta flip

Hardware: planned for one H100, with 918 MiB of memory, 200 steps, and at least 3.2 ms
per step. Time and accuracy: unmeasured.
Data: 50,000 images (Krizhevsky 2009), all of them for training.
Recipe: after airbench94 (Jordan 2024, arXiv:2404.00498: 94 % in 3.29 s on an A100) and
its version with Muon (github.com/KellerJordan/cifar10-airbench: 2.59 s), both based on
hlb-CIFAR10 (github.com/tysam-code/hlb-CIFAR10: 6.3 s): a frozen, whitening first
convolution, further convolutions initialized as identities, alternating flips and
shifts by up to 2 pixels, Muon, label smoothing 0.2, 8 epochs of batches of 2,000, and
horizontal flips at test time. Differences: ReLU instead of GELU, a last layer on the
flattened feature map and also trained with Muon, optax's scaling of Muon's updates, an
EMA of the weights instead of Lookahead, and shifted images padded with the mean colour.
"""

from jaxtrain.config import (
    AugmentConfig,
    ClassificationConfig,
    Config,
    DataConfig,
    LinearSchedule,
    MuonConfig,
    TrainConfig,
    WhitenedCNNConfig,
)


def get_config() -> Config:
    return Config(
        precision="bf16",
        data=DataConfig(
            source="tfds:cifar10",
            batch_size=2000,
            eval_batch_size=2000,
            validation_fraction=0.0,
            augment=AugmentConfig(alternating_flip=True, crop_padding=2),
        ),
        model=WhitenedCNNConfig(name="whitened_cnn"),
        optimizer=MuonConfig(
            learning_rate=0.05,
            momentum=0.6,
            weight_decay=0.01,
            schedule=LinearSchedule(),
            warmup_fraction=0.2,
        ),
        train=TrainConfig(epochs=8, ema_decay=0.95, freeze=("whiten",)),
        task=ClassificationConfig(label_smoothing=0.2),
    )

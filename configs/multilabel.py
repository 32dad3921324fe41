"""Garments on photographs, 64x64 colour: 10 labels, one to four garments per image.

    python -m tests.helpers.composed composed --num 60000 --files FASHION_MNIST_FOLDER
    python main.py --config configs/multilabel.py

Hardware: 2 CPU cores. Measured: 8 min 15 s, with compilation; the best checkpoint by
validation has on the 6,000 test images a mean average precision of 0.959, a mean AUROC
of 0.985, and a macro F1 of 0.907 with thresholds fitted on the validation split.
Data: garments of Fashion-MNIST (Xiao et al. 2017, arXiv:1708.07747) composed on tiles
of scikit-learn's photographs: 60,000 training images, 10 % of them held out for
validation, stratified by label, and 6,000 test images.
Recipe: configs/fashion_mnist_fast.py with several labels per image. Global max pooling
lets a garment anywhere in the image activate its label.
"""

from jaxtrain.config import (
    AugmentConfig,
    Config,
    DataConfig,
    LinearSchedule,
    MultilabelConfig,
    MuonConfig,
    TrainConfig,
    WhitenedCNNConfig,
)

LABELS = ("t-shirt", "trouser", "pullover", "dress", "coat")
LABELS += ("sandal", "shirt", "sneaker", "bag", "ankle-boot")


def get_config() -> Config:
    return Config(
        task=MultilabelConfig(),
        data=DataConfig(
            source="csv:composed/list.csv",
            targets=LABELS,
            image_size=64,
            channels=3,
            batch_size=120,
            eval_batch_size=240,
            augment=AugmentConfig(horizontal_flip=True),
        ),
        model=WhitenedCNNConfig(
            name="whitened_cnn_small", width=1.5, global_pool="max"
        ),
        optimizer=MuonConfig(
            learning_rate=0.06,
            momentum=0.7,
            weight_decay=0.01,
            schedule=LinearSchedule(),
            warmup_fraction=0.1,
        ),
        train=TrainConfig(epochs=5, ema_decay=0.98, freeze=("whiten",)),
    )

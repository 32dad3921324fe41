"""A tenth of Fashion-MNIST, distilled from a teacher that was trained on all of it.

    python main.py data --prepare tfds:fashion_mnist
    python main.py --config configs/fashion_mnist_fast.py --model.width 1.5 \
        --task.label-smoothing 0 --workdir runs/fashion_mnist_teacher
    python main.py --config configs/fashion_mnist_distilled.py

Hardware: 2 shared CPU cores. Measured: test accuracy 0.895 on all 10,000 test images,
with the last weights, and 0.877 without the teacher (one seed each; 89 and 67 s of CPU
time). The teacher has an accuracy of 0.930. The run without the teacher:

    python main.py --config configs/fashion_mnist.py --data.train-split "train[:10%]" \
        --train.epochs 24 --train.eval-every-epochs 6 --workdir runs/untaught

Data: 6,000 of 60,000 images (Xiao et al. 2017, arXiv:1708.07747), 10 % of them held out
for validation.
Recipe: configs/fashion_mnist.py with more epochs, and knowledge distillation (Hinton et
al. 2015, arXiv:1503.02531). The teacher is trained without label smoothing, which would
remove information on similar classes (Müller et al. 2019, arXiv:1906.02629).
"""

from dataclasses import replace

import fashion_mnist

from jaxtrain.config import Config
from jaxtrain.plugins.distillation.options import DistillationConfig


def get_config() -> Config:
    config = fashion_mnist.get_config()
    return replace(
        config,
        data=replace(config.data, train_split="train[:10%]"),
        optimizer=replace(config.optimizer, warmup_fraction=1 / 24),
        train=replace(
            config.train,
            epochs=24,
            eval_every_epochs=6,
        ),
        method=DistillationConfig(teacher="runs/fashion_mnist_teacher", temperature=2),
    )

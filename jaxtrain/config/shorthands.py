"""What options of other tools are called here, to say so where one is given."""

from collections.abc import Collection

from jaxtrain.errors import UserError

# Names of timm, PyTorch Lightning, Keras, fastai and Ultralytics -> ours.
SHORTHANDS = {
    "lr": "optimizer.learning_rate",
    "learning_rate": "optimizer.learning_rate",
    "lr0": "optimizer.learning_rate",
    "wd": "optimizer.weight_decay",
    "weight_decay": "optimizer.weight_decay",
    "momentum": "optimizer.momentum",
    "opt": "optimizer.name",
    "optimizer": "optimizer.name",
    "optim": "optimizer.name",
    "sched": "optimizer.schedule",
    "scheduler": "optimizer.schedule",
    "lr_scheduler": "optimizer.schedule",
    "warmup": "optimizer.warmup_epochs",
    "warmup_epochs": "optimizer.warmup_epochs",
    "clip_grad": "optimizer.clip_norm",
    "gradient_clip_val": "optimizer.clip_norm",
    "bs": "data.batch_size",
    "batch": "data.batch_size",
    "batch_size": "data.batch_size",
    "data": "data.source",
    "dataset": "data.source",
    "data_dir": "data.source",
    "img_size": "data.image_size",
    "image_size": "data.image_size",
    "imgsz": "data.image_size",
    "workers": "data.workers",
    "num_workers": "data.workers",
    "hflip": "data.augment.horizontal_flip",
    "mixup": "data.augment.mixup",
    "cutmix": "data.augment.cutmix",
    "epoch": "train.epochs",
    "epochs": "train.epochs",
    "num_epochs": "train.epochs",
    "max_epochs": "train.epochs",
    "steps": "train.steps",
    "max_steps": "train.steps",
    "smoothing": "train.label_smoothing",
    "label_smoothing": "train.label_smoothing",
    "ema": "train.ema_decay",
    "model_ema_decay": "train.ema_decay",
    "patience": "train.early_stop_patience",
    "freeze": "train.freeze",
    "accumulate_grad_batches": "train.accumulate_steps",
    "grad_accum_steps": "train.accumulate_steps",
    "model": "model.name",
    "arch": "model.name",
    "pretrained": "model.pretrained",
    "dropout": "model.dropout",
    "drop": "model.dropout",
    "drop_path": "model.drop_path",
    "amp": "precision",
    "device": "platform",
    "out_dir": "workdir",
    "output": "workdir",
    "output_dir": "workdir",
    "save_dir": "workdir",
    "log_interval": "logging.every_steps",
    "wandb": "logging.wandb_project",
}


def check_shorthands(given: dict[str, str], known: Collection[str]) -> None:
    """Refuse an option that is called otherwise here, with the name that it has.

    Args:
      given: The options of the command line, with `_`, and their values.
      known: The options that the command has.

    Raises:
      UserError: There is such an option.
    """
    for name, value in given.items():
        # Of optimizer.lr, too, the last part is what was meant.
        meant = SHORTHANDS.get(name.rpartition(".")[2])
        if meant is not None and name not in known and meant in known:
            shown = _option(meant) + f" {value}" * (not value.startswith("--"))
            raise UserError(f"{_option(name)}: no such option; write {shown.rstrip()}")


def _option(path: str) -> str:
    return f"--{path.replace('_', '-')}"

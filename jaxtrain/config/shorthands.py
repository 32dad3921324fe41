"""What options of other tools are called here, to say so where one is given."""

from collections.abc import Collection

from jaxtrain.errors import UserError

# Ours -> names of timm, PyTorch Lightning, Keras, fastai and Ultralytics.
OURS = {
    "optimizer.learning_rate": "lr learning_rate lr0",
    "optimizer.weight_decay": "wd weight_decay",
    "optimizer.momentum": "momentum",
    "optimizer.name": "opt optimizer optim",
    "optimizer.schedule": "sched scheduler lr_scheduler",
    "optimizer.warmup_epochs": "warmup warmup_epochs",
    "optimizer.clip_norm": "clip_grad gradient_clip_val",
    "data.batch_size": "bs batch batch_size",
    "data.source": "data dataset data_dir",
    "data.image_size": "img_size image_size imgsz",
    "data.workers": "workers num_workers",
    "data.augment.horizontal_flip": "hflip",
    "data.augment.mixup": "mixup",
    "data.augment.cutmix": "cutmix",
    "train.epochs": "epoch epochs num_epochs max_epochs",
    "train.steps": "steps max_steps",
    "train.label_smoothing": "smoothing label_smoothing",
    "train.ema_decay": "ema model_ema_decay",
    "train.early_stop_patience": "patience",
    "train.freeze": "freeze",
    "train.accumulate_steps": "accumulate_grad_batches grad_accum_steps",
    "model.name": "model arch",
    "model.pretrained": "pretrained",
    "model.dropout": "dropout drop",
    "model.drop_path": "drop_path",
    "precision": "amp",
    "platform": "device",
    "workdir": "out_dir output output_dir save_dir",
    "logging.every_steps": "log_interval",
    "logging.wandb_project": "wandb",
}
SHORTHANDS = {other: ours for ours, names in OURS.items() for other in names.split()}


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

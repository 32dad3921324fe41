"""`main.py data`: chooses the action."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from jaxtrain.config import Config
from jaxtrain.errors import UserError
from jaxtrain.processes.signals import StopSignals

EXAMPLE = "--check --config configs/digits.py"

# Action -> the options that it takes.
ACTIONS = {
    "prepare": ("manual_dir", "data_dir"),
    "check": ("config", "source", "data_dir", "workdir", "out", "write_clean"),
}


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Prepare a data set of TFDS, or look a data set over before training."""

    # Prepare this set, such as tfds:mnist, for training without TensorFlow.
    prepare: str | None = None
    # Look all images over, and write data_report.json and data_report.html.
    check: bool = False
    # With --check: the recipe whose data are meant.
    config: Path | None = None
    # With --check: the data, as data.source takes them; there is no recipe then.
    source: str | None = None
    # With --check: a trained run, whose predictions tell which labels may be wrong.
    workdir: Path | None = None
    # With --check: folder of the reports; None: data_report.
    out: Path | None = None
    # With --check: a file for the names of the good images, as data.include takes it.
    write_clean: Path | None = None
    # With --prepare: folder with files that TFDS cannot, or need not, download.
    manual_dir: Path | None = None
    # With --prepare or --source: where TFDS data sets lie; None: $TFDS_DATA_DIR, else
    # ~/tensorflow_datasets.
    data_dir: Path | None = None
    overrides: Annotated[Config, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]


def run(arguments: Arguments, signals: StopSignals) -> None:
    """Do the one thing that is asked for.

    Raises:
      UserError: it is not one thing, an option has no effect on it, or it failed.
    """
    action = _action(arguments)
    if action == "prepare":
        from jaxtrain.data.tfds_prepare import prepare

        assert arguments.prepare is not None
        path = prepare(
            arguments.prepare,
            data_dir=arguments.data_dir,
            manual_dir=arguments.manual_dir,
        )
        print(f"{arguments.prepare} is prepared in {path}")
    else:
        from jaxtrain.commands import data_check

        data_check.run(arguments)


def _action(arguments: Arguments) -> str:
    """Return which action is asked for.

    Raises:
      UserError: none or several are, or an option has no effect.
    """
    asked = [action for action in ACTIONS if getattr(arguments, action)]
    if len(asked) != 1:
        raise UserError(f"give one of {', '.join(f'--{name}' for name in ACTIONS)}")
    takes = (*ACTIONS, *ACTIONS[asked[0]], "overrides")
    for field in dataclasses.fields(arguments):
        value = getattr(arguments, field.name)
        if field.name not in takes and value is not None:
            option = field.name.replace("_", "-")
            raise UserError(f"--{option} {value} has no effect with --{asked[0]}")
    if "config" not in takes and arguments.overrides != Config():
        raise UserError(f"fields of a config have no effect with --{asked[0]}")
    return asked[0]

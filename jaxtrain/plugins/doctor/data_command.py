"""`main.py data`: dispatch to the actions."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import tyro

from jaxtrain.config import Config, replace, values_of
from jaxtrain.config.metadata import field
from jaxtrain.errors import UserError
from jaxtrain.plugin import resolve
from jaxtrain.processes.signals import StopSignals

EXAMPLE = "--check --config configs/digits.py"


class Action(NamedTuple):
    """Action of the command, such as `--check`.

    Attributes:
      function: Function to call, as "module:name" in this package.
      takes: Names of the options that the action uses.
      fields: Config fields that the action uses, if it does not use `--config`.
    """

    function: str
    takes: tuple[str, ...]
    fields: tuple[str, ...] = ()


ACTIONS = {
    "prepare": Action("actions:prepare", ("manual_dir", "data_dir")),
    "check": Action(
        "check_command:run",
        ("config", "source", "data_dir", "workdir", "out", "write_clean", "trust"),
    ),
    "preview": Action("actions:preview", ("config", "out", "trust")),
    "pack": Action(
        "actions:pack",
        ("out", "size", "format", "data_dir", "max_bad_fraction", "include"),
        ("data.options", "data.max_pixels", "data.white_level"),
    ),
    "verify": Action("actions:verify", ()),
}


@dataclass(frozen=True, kw_only=True)
class DataArguments:
    """Check, preview, prepare or pack a data set."""

    check: bool = field(
        False,
        help="Check all images, and write data_report.json and data_report.html.",
    )
    preview: bool = field(
        False,
        help="Draw training images before and after augmentation.",
    )
    prepare: str | None = field(
        None,
        help="Prepare this TFDS data set, such as tfds:mnist, for training without "
        "TensorFlow.",
    )
    pack: str | None = field(
        None,
        help="Pack this data set, given in the format of data.source, for training on "
        "packed:DIR.",
    )
    verify: Path | None = field(
        None,
        help="Verify the checksums of all files of this packed data set.",
    )

    config: Path | None = field(
        None,
        help="With --check or --preview: recipe that names the data set.",
    )
    source: str | None = field(
        None,
        help="With --check: data set, in the format of data.source, instead of a "
        "recipe.",
    )
    workdir: Path | None = field(
        None,
        help="With --check: directory of a trained run, whose predictions are used to "
        "find wrong labels.",
    )
    out: Path | None = field(
        None,
        help="Output: the directory of the reports of --check (None: data_report), the "
        "PNG file of --preview (None: preview.png), or the directory of the packed "
        "images of --pack.",
    )
    write_clean: Path | None = field(
        None,
        help="With --check: write the names of images without problems to this file, "
        "for data.include.",
    )
    manual_dir: Path | None = field(
        None,
        help="With --prepare: directory of manually downloaded files, which TFDS uses "
        "instead of a download.",
    )
    data_dir: Path | None = field(
        None,
        help="With --prepare, --pack or --source: directory of TFDS data sets; None: "
        "$TFDS_DATA_DIR, else ~/tensorflow_datasets.",
    )
    size: int | None = field(
        None,
        help="With --pack: shorter side, in pixels, to which larger images are scaled "
        "down; with --format raw, height and width of all images. None: as stored.",
    )
    format: Literal["jpeg", "raw"] | None = field(
        None,
        help="With --pack: image files (jpeg), or arrays of one size (raw); None: "
        "jpeg.",
    )
    max_bad_fraction: float | None = field(
        None,
        help="With --pack: maximum fraction of unreadable images of a split. "
        "Unreadable images are excluded. None: 0.02.",
    )
    include: Path | None = field(
        None,
        help="With --pack: file that lists the images to pack, like data.include.",
    )
    trust: bool = field(
        False,
        help="With --check or --preview: run the custom code named by the run in "
        "--workdir or by model.pretrained, after its files are shown and compared with "
        "the recorded digests.",
    )
    overrides: Annotated[Config, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]

    @staticmethod
    def starting_config(given: Mapping[str, Any]) -> Config:
        """Return the default config, with `data.source` from `--check --source`.

        Defaults of other fields may depend on the value of `--source`.
        """
        source = given.get("source")
        if not source or "check" not in given:
            return Config()
        from jaxtrain.data.opening import complete

        return replace(Config(), "data.source", complete(source))


def run(arguments: DataArguments, signals: StopSignals) -> None:
    """Run the requested action."""
    requested = [action for action in ACTIONS if getattr(arguments, action)]
    if len(requested) != 1:
        raise UserError(
            "the command `data` requires one action: give one of "
            f"{', '.join(f'--{name}' for name in ACTIONS)}"
        )
    action = ACTIONS[requested[0]]
    _check_options(arguments, requested[0], action)
    resolve(f"{__package__}.{action.function}")(arguments)


def _check_options(arguments: DataArguments, name: str, action: Action) -> None:
    """Reject options and config fields that an action does not use."""
    takes = (*ACTIONS, *action.takes, "overrides")
    for option, value in vars(arguments).items():
        if option not in takes and value is not None and value is not False:
            shown = "" if value is True else f" {value}"
            given = f"--{option.replace('_', '-')}{shown}"
            raise UserError(
                f"{given} has no effect with --{name}: leave the option out"
            )
    if "config" in takes:
        return
    plain = values_of(Config())
    for path, value in values_of(arguments.overrides).items():
        if path not in action.fields and value != plain.get(path):
            known = f", only {' and '.join(action.fields)}" if action.fields else ""
            raise UserError(
                f"{path} = {value!r} has no effect with --{name}{known}: leave {path} "
                "out"
            )

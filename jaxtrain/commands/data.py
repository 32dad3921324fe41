"""`main.py data`."""

from dataclasses import dataclass
from pathlib import Path

from jaxtrain.processes.signals import StopSignals

EXAMPLE = "--prepare tfds:mnist"


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Prepare a data set of TensorFlow Datasets for training without TensorFlow."""

    # The data set, such as tfds:mnist.
    prepare: str
    # Folder with files that TFDS cannot, or need not, download.
    manual_dir: Path | None = None
    # Where to put the data set; None: $TFDS_DATA_DIR, else ~/tensorflow_datasets.
    data_dir: Path | None = None


def run(arguments: Arguments, signals: StopSignals) -> None:
    """Prepare the set, and print where it lies.

    Raises:
      UserError: the set, a folder or TensorFlow is missing, or preparing failed.
    """
    from jaxtrain.data.tfds_prepare import prepare

    path = prepare(
        arguments.prepare,
        data_dir=arguments.data_dir,
        manual_dir=arguments.manual_dir,
    )
    print(f"{arguments.prepare} is prepared in {path}")

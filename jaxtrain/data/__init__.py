"""Data sets with random access, and the table of data sources."""

import importlib
from typing import TYPE_CHECKING, Any

from jaxtrain.plugin import Table

if TYPE_CHECKING:
    from jaxtrain.data.input_kind import InputKind
    from jaxtrain.data.sources import load as load
    from jaxtrain.data.stores import OpenStore

# Form of `data.source` (KIND:ARGUMENT) -> function that opens the data set.
SOURCES: "Table[OpenStore]" = Table(
    "sources",
    {
        "digits": "jaxtrain.data.stores:open_digits",
        "csv:FILE": "jaxtrain.data.csv_list:open_csv",
        "folder:DIR": "jaxtrain.data.folder:open_folder",
        "arrays:FILE.npz": "jaxtrain.data.arrays:open_arrays",
        "idx:DIR": "jaxtrain.data.idx:open_idx",
        "hf:NAME_OR_DIR": "jaxtrain.data.hf:open_hf",
        "tfds:NAME": "jaxtrain.data.tfds:open_tfds",
        "synthetic:HxWxC/CLASSES[/EXAMPLES]": "jaxtrain.data.stores:open_synthetic",
    },
)
# Name of the split of unlabelled examples. The split `all` excludes this split.
UNLABELLED = "unlabelled"
# Subsection of `data` -> type of inputs that are not images, such as audio clips.
INPUTS: "Table[type[InputKind]]" = Table("inputs", {})


def forms() -> dict[str, str]:
    """Map source types, such as csv, to forms of `data.source`, such as csv:FILE."""
    return {form.partition(":")[0]: form for form in SOURCES}


def is_path(form: str) -> bool:
    """Whether a form of `data.source`, such as csv:FILE, contains a path."""
    return form.partition(":")[2].startswith(("DIR", "FILE"))


def __getattr__(name: str) -> Any:
    # `load` is imported lazily, because its module imports the file formats.
    if name != "load":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.sources").load

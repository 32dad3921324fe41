"""Record of a run's data in its folder, to see whether they are the same."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from jaxtrain.errors import UserError, first_of

# Names of classes that a message gives.
NUM_NAMED = 5


class DataRecord(TypedDict):
    """Content of `data.json`.

    Attributes:
      num_examples: Number of examples by split.
      num_classes: Number of classes, or None if the targets are no classes.
      class_names: Names by number, or None if there are none.
      digest: Digest of the files' names or contents, or None if it is not known.
    """

    num_examples: dict[str, int]
    num_classes: int | None
    class_names: list[str] | None
    digest: str | None


def describe_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """List what is other in the data of a run than when it began."""
    told = [
        f"examples of the {split} split: {before} -> {after}"
        for split, before in old["num_examples"].items()
        if before != (after := new["num_examples"].get(split))
    ]
    before, after = old["class_names"], new["class_names"]
    if old["num_classes"] != new["num_classes"]:
        told.append(f"classes: {old['num_classes']} -> {new['num_classes']}")
    if before is not None and after is not None and before != after:
        told.append(_describe_names(before, after))
    if _both_known(old, new) and old["digest"] != new["digest"]:
        told.append("the names or the contents of its files, by their digest")
    return told


def may_have_moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether the data are known to be the same, wherever they are stored."""
    return _both_known(old, new) and not describe_changes(old, new)


def check_agree(found: Sequence[Mapping[str, Any]]) -> None:
    """Check that all processes of a run see the same data."""
    for process, data in enumerate(found):
        if changes := describe_changes(found[0], data):
            raise UserError(
                f"process {process} finds other data in {data['source']} than process "
                "0:\n  " + "\n  ".join(changes) + "\nGive all of them the same files"
            )


def _both_known(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return None not in (old["digest"], new["digest"])


def _describe_names(before: Sequence[str], after: Sequence[str]) -> str:
    old, new = set(before), set(after)
    parts = {"gone": sorted(old - new), "new": sorted(new - old)}
    told = [f"{what}: {first_of(x, NUM_NAMED)}" for what, x in parts.items() if x]
    return f"names of classes, {'; '.join(told) or 'their order'}"

"""Description of a run's data, to detect changes when the run resumes."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from jaxtrain.errors import UserError, first_of

# Maximum number of new or removed class names in a message.
NUM_NAMED = 5


class DataRecord(TypedDict):
    """Contents of `data.json`.

    Attributes:
      num_examples: Name of the split -> number of examples.
      num_classes: Number of classes; None if the targets are not classes.
      class_names: Names of the classes, in index order; None if the classes have no
        names, or if the targets are not classes.
      digest: Digest of file names or file contents; None if unknown.
    """

    num_examples: dict[str, int]
    num_classes: int | None
    class_names: list[str] | None
    digest: str | None


def describe_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Describe each difference between recorded and current data."""
    changes = [
        f"examples of the {split} split: {before} -> {after}"
        for split, before in old["num_examples"].items()
        if before != (after := new["num_examples"].get(split))
    ]
    before, after = old["class_names"], new["class_names"]
    if old["num_classes"] != new["num_classes"]:
        changes.append(f"classes: {old['num_classes']} -> {new['num_classes']}")
    if before is not None and after is not None and before != after:
        changes.append(_describe_names(before, after))
    if _both_known(old, new) and old["digest"] != new["digest"]:
        changes.append("the digest of the file names or contents")
    return changes


def are_known_equal(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether both digests are known and the records agree; paths may differ."""
    return _both_known(old, new) and not describe_changes(old, new)


def check_agree(found: Sequence[Mapping[str, Any]]) -> None:
    """Raise UserError if the data records of a run's processes differ."""
    for process, data in enumerate(found):
        if changes := describe_changes(found[0], data):
            raise UserError(
                f"data.source = {data['source']} differs between process {process} and "
                "process 0:\n  "
                + "\n  ".join(changes)
                + ("\nGive all processes the same files")
            )


def _both_known(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return None not in (old["digest"], new["digest"])


def _describe_names(before: Sequence[str], after: Sequence[str]) -> str:
    old, new = set(before), set(after)
    parts = {"gone": sorted(old - new), "new": sorted(new - old)}
    changes = [f"{what}: {first_of(x, NUM_NAMED)}" for what, x in parts.items() if x]
    return f"class names: {'; '.join(changes) or 'another order'}"

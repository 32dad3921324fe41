"""Pairs of layers of two models, of which one is to compute what the other does."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from jaxtrain.dtypes import widen
from jaxtrain.errors import UserError
from jaxtrain.models.auxiliary import main_outputs
from jaxtrain.models.base import Cuts

Pieces = Sequence[Sequence[str]]


class LayerPair(NamedTuple):
    """Two layers that are compared.

    Attributes:
      kind: How, such as `attention`.
      text: The pair as it was given.
      student: Place of the student's activations among those behind its cuts.
      teacher: The same of the teacher.
    """

    kind: str
    text: str
    student: int
    teacher: int


class LayerPairs(NamedTuple):
    """Pairs of pieces of two models.

    Attributes:
      student: Numbers of pieces behind which the student is looked into, rising.
      teacher: Those of the teacher, rising.
      pairs: The pairs.
    """

    student: Cuts
    teacher: Cuts
    pairs: tuple[LayerPair, ...]

    def activations(
        self, kind: str, student: Sequence[Any], teacher: Sequence[Any]
    ) -> Iterator[tuple[jax.Array, jax.Array]]:
        """Yield the activations of each pair of a kind, in at least float32.

        Args:
          kind: How they are compared.
          student: Activations of the student behind its cuts, (B, H, W, C) each.
          teacher: Those of the teacher.
        """
        for pair in self.pairs:
            if pair.kind == kind:
                both = student[pair.student], teacher[pair.teacher]
                yield widen(tuple(map(main_outputs, both)))

    def check(self, student: Sequence[Any], teacher: Sequence[Any]) -> None:
        """Check that maps have rows and columns, as many in both models.

        Args:
          student: Abstract activations of the student behind its cuts.
          teacher: Those of the teacher.

        Raises:
          UserError: They do not.
        """
        for pair in self.pairs:
            ours, theirs = _shape(student[pair.student]), _shape(teacher[pair.teacher])
            if len(ours) == len(theirs) == 4 and ours[1:3] == theirs[1:3]:
                continue
            raise UserError(
                f"train.method_options: {pair.kind}_layers: behind {pair.text} the "
                f"student has {ours} and the teacher {theirs}: expected maps (batch, "
                "rows, columns, channels) of as many rows and columns"
            )

    def check_positions(self, kind: str, student: Sequence[Any], least: int) -> None:
        """Check that there are enough positions for what is fitted to them.

        Args:
          kind: How they are compared.
          student: Abstract activations of the student behind its cuts.
          least: Positions of a micro-batch that each channel asks for.

        Raises:
          UserError: There are fewer.
        """
        for pair in self.pairs:
            shape = _shape(student[pair.student])
            num, channels = math.prod(shape[:-1]), shape[-1]
            if pair.kind == kind and num < least * channels:
                raise UserError(
                    f"train.method_options: {kind}_layers: behind {pair.text} a "
                    f"micro-batch of the student has {num} positions for {channels} "
                    f"channels, and {least * channels} are needed: choose an earlier "
                    "layer, or a larger batch"
                )


def find_pairs(
    texts: Mapping[str, str], student: Pieces, teacher: Pieces
) -> LayerPairs:
    """Read pairs of layers such as `stage1_block2:stage1_block3,stage2_block1:conv4`.

    Args:
      texts: Kind of comparison -> its pairs.
      student: Names of the layers of each piece of the student.
      teacher: The same of the teacher.

    Raises:
      UserError: There is no such layer, or a pair is not one.
    """
    found = list[tuple[str, str, int, int]]()
    for kind, text in texts.items():
        field = f"train.method_options: {kind}_layers"
        for pair in map(str.strip, text.split(",")):
            ours, colon, theirs = pair.partition(":")
            if not (ours and colon and theirs):
                raise UserError(
                    f"{field} = {text!r}: {pair!r} is no pair; expected "
                    "student_layer:teacher_layer, and commas between pairs"
                )
            one = _behind(ours, student, f"{field}: the student")
            other = _behind(theirs, teacher, f"{field}: the teacher")
            found.append((kind, pair, one, other))
    ours = tuple(sorted({one for *_, one, _ in found}))
    theirs = tuple(sorted({other for *_, other in found}))
    pairs = tuple(
        LayerPair(kind, text, ours.index(one), theirs.index(other))
        for kind, text, one, other in found
    )
    return LayerPairs(ours, theirs, pairs)


def _shape(activations: Any) -> tuple[int, ...]:
    """Return the shape of activations; () if they are no single array."""
    return getattr(main_outputs(activations), "shape", ())


def _behind(name: str, pieces: Pieces, whose: str) -> int:
    """Return the number of the piece with a layer, counted from 1."""
    # The last one makes the outputs.
    for number, names in enumerate(pieces[:-1], start=1):
        if name in names:
            return number
    known = [names[-1] for names in pieces[:-1] if names]
    raise UserError(
        f"{whose} has no layer {name!r} before its last piece; it has "
        f"{', '.join(known)}"
    )

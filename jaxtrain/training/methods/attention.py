"""Where two models look: the layers of one whose attention is that of another.

Zagoruyko and Komodakis 2017, arXiv:1612.03928.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxtrain.dtypes import widen
from jaxtrain.errors import UserError
from jaxtrain.models.auxiliary import main_outputs
from jaxtrain.models.base import Cuts

# Added to the square of a norm, which is 0 where all activations are.
TINY = 1e-24
Pieces = Sequence[Sequence[str]]


class AttentionPairs(NamedTuple):
    """Pairs of pieces of two models, whose attention is compared.

    Attributes:
      student: Numbers of pieces behind which the student is looked into, rising.
      teacher: Those of the teacher, rising.
      pairs: For each pair the places of both among these.
    """

    student: Cuts
    teacher: Cuts
    pairs: tuple[tuple[int, int], ...]

    def losses(self, student: Sequence[Any], teacher: Sequence[Any]) -> jax.Array:
        """Return the sum over the pairs of how far the maps differ, (B,).

        A map is the sum of squares over the channels, (B, H, W), divided by its norm;
        two of them differ by the mean of the squares.

        Args:
          student: Activations of the student behind its cuts, (B, H, W, C) each.
          teacher: Those of the teacher.
        """
        differences = [
            jnp.square(_attention(student[i]) - _attention(teacher[j])).mean((1, 2))
            for i, j in self.pairs
        ]
        return sum(differences[1:], differences[0])

    def check(self, student: Sequence[Any], teacher: Sequence[Any], text: str) -> None:
        """Check that maps have rows and columns, as many in both models.

        Args:
          student: Abstract activations of the student behind its cuts.
          teacher: Those of the teacher.
          text: The pairs, as they were given.

        Raises:
          UserError: They do not.
        """
        for (i, j), pair in zip(self.pairs, text.split(","), strict=True):
            shapes = [_shape(student[i]), _shape(teacher[j])]
            maps = all(len(shape) == 4 for shape in shapes)
            if not maps or shapes[0][1:3] != shapes[1][1:3]:
                raise UserError(
                    f"train.method_options: attention_layers = {text!r}: behind {pair} "
                    f"the student has {shapes[0]} and the teacher {shapes[1]}: "
                    "expected maps (batch, rows, columns, channels) of as many rows "
                    "and columns"
                )


def find_pairs(text: str, student: Pieces, teacher: Pieces) -> AttentionPairs:
    """Read pairs of layers such as `stage1_block2:stage1_block3,stage2_block1:conv4`.

    Raises:
      UserError: There is no such layer, or a pair is not one.
    """
    places = list[tuple[int, int]]()
    for pair in text.split(","):
        ours, colon, theirs = pair.strip().partition(":")
        if not (ours and colon and theirs):
            raise UserError(
                f"train.method_options: attention_layers = {text!r}: {pair!r} is no "
                "pair; expected student_layer:teacher_layer, and commas between pairs"
            )
        one = _behind(ours, student, "student")
        places.append((one, _behind(theirs, teacher, "teacher")))
    ours, theirs = (tuple(sorted({*cuts})) for cuts in zip(*places, strict=True))
    pairs = tuple((ours.index(i), theirs.index(j)) for i, j in places)
    return AttentionPairs(ours, theirs, pairs)


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
        f"train.method_options: attention_layers: the {whose} has no layer {name!r} "
        f"before its last piece; it has {', '.join(known)}"
    )


def _attention(activations: Any) -> jax.Array:
    """Return the map of each example, (B, H, W), of norm 1."""
    energy = jnp.square(widen(main_outputs(activations))).sum(-1)
    return energy / jnp.sqrt(jnp.square(energy).sum((1, 2), keepdims=True) + TINY)

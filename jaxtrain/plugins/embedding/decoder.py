"""Decoder of unit-length image embeddings."""

from typing import Any

import jax

from jaxtrain.dtypes import widen
from jaxtrain.models.centres import unit
from jaxtrain.tasks.array_decoder import NumbersPrediction
from jaxtrain.tasks.decoder import OutputFacts
from jaxtrain.tasks.number_decoder import NumberDecoder
from jaxtrain.tasks.outputs import Readout
from jaxtrain.tasks.prediction import AnswerParts

NAME = "embedding"


class EmbeddingPrediction(NumbersPrediction):
    """Embedding of one image; its JSON form is a list of numbers."""

    def json(self, topk: int) -> dict[str, Any]:
        del topk
        return {NAME: self.numbers.tolist()}


class EmbeddingDecoder(NumberDecoder):
    """Decoder of embeddings, (B, size).

    Args:
      facts: Metadata of the run: task options, classes, image shape.
      size: Number of features of an embedding.
    """

    embeds = True
    kind = EmbeddingPrediction

    def __init__(self, facts: OutputFacts, size: int):
        columns = tuple(f"{NAME}_{i}" for i in range(size))
        super().__init__(facts, Readout(NAME, columns, of_length_one))

    def describe(self) -> str:
        return f"embeddings of {len(self.names)} numbers"

    def refuses_mean(self) -> str:
        return (
            "each model has a different embedding space, and "
            "vectors of different spaces cannot be averaged"
        )

    def answer_parts(self) -> AnswerParts:
        return AnswerParts("numbers", (), {"size": len(self.names)})


def of_length_one(outputs: jax.Array) -> jax.Array:
    """L2-normalize vectors, in at least float32."""
    return unit(widen(outputs))

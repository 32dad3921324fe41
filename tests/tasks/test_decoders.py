"""Predictions: rows, answers and exported arrays are of one decoder."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.errors import UserError
from jaxtrain.tasks import TASKS
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.decoder import OutputDecoder, OutputFacts
from tests.helpers.facts import facts_of
from tests.helpers.rows import each_row

NAMES = ("cat", "dog", "owl")
LOGITS = jnp.array([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]])
NUMBERS = {"mean": "1.0,2.0", "std": "0.5,2.0"}
DECODERS: dict[str, tuple[str, OutputFacts]] = {
    "classes": ("classification", facts_of(3, class_names=NAMES)),
    "labels": ("multilabel", facts_of(3, class_names=NAMES)),
    "numbers": ("regression", facts_of(2, options=NUMBERS, column_names=("a", "b"))),
}


def decoder_of(name: str) -> OutputDecoder:
    task, facts = DECODERS[name]
    return TASKS[task].decoder(facts)


@each_row("name", DECODERS)
def test_a_row_has_the_columns_that_the_decoder_names(name: str):
    decoder, (_, facts) = decoder_of(name), DECODERS[name]
    outputs = LOGITS[:, : facts.outputs.shape[-1]]
    for topk in (1, 2) if name == "classes" else (1,):
        decoded: Any = decoder.decode(outputs, topk)
        decoded = {name: np.asarray(x) for name, x in decoded.items()}
        found = decoder.prediction(decoded, 0)
        columns, row = decoder.columns(topk), found.row()
        assert {name: type(x) for name, x in row.items()} == dict(columns)
        assert len(found.cells()) == len(decoder.heads())
        assert found.json(2) and found.draw(np.zeros((8, 8, 3), np.uint8)) is None


@each_row(
    ("name", "words"),
    [("classes", "3 classes"), ("labels", "3 labels"), ("numbers", "2 numbers: a, b")],
)
def test_a_decoder_says_in_words_what_the_outputs_are(name: str, words: str):
    assert decoder_of(name).describe() == words


def test_outputs_without_a_meaning_are_counted():
    assert Task.decoder(facts_of(4, 4, 2)).describe() == "2 outputs"
    assert Task.decoder(facts_of(5)).describe() == "5 outputs"


def test_a_temperature_changes_probabilities_and_no_order():
    decoder = decoder_of("classes")
    softer = decoder.calibrated(10.0).decode(LOGITS, 3)
    sure = decoder.decode(LOGITS, 3)
    np.testing.assert_array_equal(softer["index"], sure["index"])
    assert (softer["probabilities"].max(-1) < sure["probabilities"].max(-1)).all()
    assert decoder.calibrated(None).decode(LOGITS)["index"].shape == (2, 1)


def test_thresholds_that_validation_chose_tell_the_labels():
    facts = facts_of(3, class_names=NAMES, chosen={"thresholds": [0.4, 0.9, 0.6]})
    decoder = TASKS["multilabel"].decoder(facts)
    decoded = {k: np.asarray(x) for k, x in decoder.decode(LOGITS).items()}
    assert decoder.prediction(decoded, 0).row()["labels"] == "cat;owl"
    assert decoder.prediction(decoded, 0).json(1)["labels"] == ["cat", "owl"]


def test_what_a_decoder_cannot_do_it_refuses():
    plain = Task.decoder(facts_of(4, 4, 2))
    assert plain.columns() == {} and plain.answer_parts() is None
    for refused, told in (
        (
            lambda: plain.check_topk(2),
            "--topk: task = 'one' does not predict one class",
        ),
        (lambda: plain.mask(LOGITS), "does not predict pixel classes"),
        (plain.check_values, "request logits"),
        (lambda: decoder_of("labels").calibrated(2.0), "not a ranking of classes"),
        (lambda: decoder_of("classes").check_topk(4), "--topk 4: the model has 3"),
        (lambda: plain.exported(probabilities=False, nms=True), "--include-nms: "),
    ):
        with pytest.raises(UserError, match=told):
            refused()


@each_row(
    ("name", "array"),
    [("classes", "probabilities"), ("labels", "probabilities"), ("numbers", "values")],
)
def test_an_exported_array_is_that_of_predictions(name: str, array: str):
    decoder, (_, facts) = decoder_of(name), DECODERS[name]
    outputs = LOGITS[:, : facts.outputs.shape[-1]]
    exported = decoder.exported(probabilities=True, nms=False)
    assert exported.name == array
    np.testing.assert_array_equal(exported.of(outputs), decoder.decode(outputs)[array])

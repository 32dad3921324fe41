"""Charts, axes, and the other pieces of pages, in numbers."""

import math
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jinja2 import UndefinedError
from markupsafe import Markup

from jaxtrain.config import (
    AugmentConfig,
    Config,
    CustomConfig,
    DataConfig,
    LeNetConfig,
    TrainConfig,
)
from jaxtrain.config.recipe import load_config
from jaxtrain.plugins.report.again import write_recipe
from jaxtrain.plugins.report.class_sections import NUM_BEST, NUM_WORST
from jaxtrain.plugins.report.compare import make_comparison
from jaxtrain.plugins.report.examples import (
    DrawnExample,
    Examples,
    Predictions,
    Sample,
)
from jaxtrain.plugins.report.history import History
from jaxtrain.plugins.report.overview import subject
from jaxtrain.plugins.report.page import make_page
from jaxtrain.plugins.report.pages import templates
from jaxtrain.plugins.report.pages.charts import (
    MAX_POINTS,
    Series,
    line_chart,
    make_scale,
    short,
    thin,
)
from jaxtrain.plugins.report.reliability import reliability
from tests.helpers.browser import Elements
from tests.helpers.processes import ROOT
from tests.helpers.rows import each_row

FINITE = st.floats(-1e30, 1e30).map(lambda x: 0.0 if abs(x) < 1e-30 else x)


@settings(deadline=None)
@given(st.lists(FINITE, min_size=1, max_size=20), st.booleans())
def test_a_scale_holds_all_values_between_its_ends(values: list[float], log: bool):
    scale = make_scale(values, 44, 352, num=4, log=log)
    assert 2 <= len(scale.ticks) <= 9
    for value in values:
        assert 44 - 1e-6 <= scale.place(value) <= 352 + 1e-6
    places = [scale.place(tick) for tick in scale.ticks]
    assert places == sorted(places)


def test_ticks_are_round():
    assert make_scale([0.02, 0.93], 0, 1, num=4).ticks == (0, 0.5, 1.0)
    assert make_scale([3, 997], 0, 1, num=5).ticks == (0, 200, 400, 600, 800, 1000)
    ticks = make_scale([2e-4, 3.0], 0, 1, num=4, log=True).ticks
    assert np.allclose(ticks, [1e-4, 1e-2, 1])
    assert [short(x) for x in (0, 1500, 12_000, 2.5e6, 1e-5, 0.25)] == [
        *("0", "1500", "12k", "2.5M", "1e-5", "0.25")
    ]


def test_a_long_curve_keeps_its_peaks_and_its_ends():
    values = np.sin(np.arange(50_000) / 500)
    values[31_234], values[777] = 9.0, -9.0
    points = [(i, float(y)) for i, y in enumerate(values)]
    kept = thin(points)
    assert len(kept) <= MAX_POINTS + 2
    assert {(31_234, 9.0), (777, -9.0), points[0], points[-1]} <= set(kept)
    assert [x for x, _ in kept] == sorted({x for x, _ in kept})


def test_a_curve_breaks_where_there_is_no_number():
    points = [(1, 1.0), (2, None), (3, 2.0), (4, math.inf), (5, 3.0), (6, 1.0)]
    chart = line_chart("<loss>", [Series("a & b", points)])
    (path,) = re.findall(r'class="line" d="([^"]*)"', chart)
    assert path.count("M") == 3 and path.count("L") == 1
    assert "&lt;loss&gt;" in chart and "a &amp; b" in chart
    assert "nan" not in chart and "inf" not in chart
    assert line_chart("loss", [Series("a", [(1, None), (2, math.nan)])]) == ""


def test_the_bars_of_the_reliability_diagram():
    confidence = np.array([0.25, 0.95, 0.95, 0.91, 0.45])
    right = np.array([True, True, True, False, False])
    found = Predictions(
        split="test",
        step=1,
        num_split=5,
        index=np.arange(5),
        label=np.ones(5, int),
        predicted=right.astype(int),
        confidence=confidence,
        true_probability=confidence,
    )
    gap, error, drawn = reliability(found)
    bars = re.findall(r"<title>(\d+) images: confidence (.*?), accuracy (.*?)<", drawn)
    assert bars == [
        *(("1", "0.250", "1.000"), ("1", "0.450", "0.000"), ("3", "0.937", "0.667"))
    ]
    # |1 - 0.25|, |0 - 0.45|, |0 - 0.91|, |2 - 1.9|, of 5 examples, in 15 bins.
    assert np.isclose(error, (0.75 + 0.45 + 0.91 + 0.1) / 5)
    assert np.isclose(gap, confidence.mean() - right.mean())
    heights = [float(h) for h in re.findall(r'height="([\d.]+)"', drawn)]
    assert np.allclose(heights, [198, 0.8, 132])


def test_which_examples_are_shown():
    true = np.array([0.9, 0.1, 0.4, 0.02, 0.6])
    found = Predictions(
        split="test",
        step=1,
        num_split=5,
        index=np.arange(5),
        label=np.zeros(5, int),
        predicted=np.array([0, 1, 2, 1, 0]),
        confidence=np.array([0.9, 0.7, 0.5, 0.97, 0.6]),
        true_probability=true,
    )
    assert found.choose() == {
        "worst": [3, 1, 2],
        "unsure": [2, 4, 1, 0, 3],
        "sure": [0, 4],
    }


@each_row(
    "config",
    [
        Config(),
        Config(
            seed=3,
            task=CustomConfig(name="a/b.py:Mine", options={"size": 2}),
            data=DataConfig(
                source='folder:it\'s "here"',
                mean=(0.1, 0.2, 0.3),
                std=(1.0, 1.0, 0.5),
                options={},
                augment=AugmentConfig(crop_padding=2),
            ),
            model=LeNetConfig(),
            train=TrainConfig(steps=7, metrics=("m.py:one",)),
        ),
        *(load_config(path) for path in sorted((ROOT / "configs").glob("*.py"))),
    ],
)
def test_the_recipe_on_the_page_makes_the_same_config(config: Config):
    names: dict[str, Any] = {}
    exec(write_recipe(config), names)
    assert names["get_config"]() == config


def summary_of(num_classes: int, matrix: bool) -> dict[str, Any]:
    recall = [i / num_classes for i in range(num_classes)]
    values: dict[str, Any] = {"accuracy": 0.5, "recall": recall, "precision": recall}
    if matrix:
        counts = np.random.default_rng(0).integers(0, 3, (num_classes, num_classes))
        values["confusion_matrix"] = counts.tolist()
    return {"step": 10, "eval": values}


@pytest.mark.parametrize(("num", "matrix"), [(1000, False), (100, True)])
def test_a_page_of_many_classes_is_small(tmp_path: Path, num: int, matrix: bool):
    summary = summary_of(num, matrix)
    names = [f"class number {i}" for i in range(num)]
    lines = [{"kind": "train", "step": i, "loss": 1 / (i + 1)} for i in range(20_000)]
    lines += [{"kind": "event", "step": 5, "event": "bad step"}] * 500
    summary["step"] = 20_000
    history = History(
        workdir=tmp_path,
        config=None,
        lines=lines,
        summary=summary,
        model={"class_names": names},
    )
    page = make_page(history, Examples()).decode()
    assert len(page) < 300_000
    table = page.partition("<h2>Classes</h2>")[2].partition("</section>")[0]
    assert table.count("<tr>") == 1 + NUM_WORST + NUM_BEST
    assert "class number 0<" in table and f"class number {num - 1}<" in table
    assert "class number 50<" not in table
    assert ("Confusion matrix" in page) == matrix
    assert "460 more events are in metrics.jsonl" in page


def test_the_table_of_classes_and_what_is_confused(tmp_path: Path):
    counts = np.array([[8, 2, 0], [0, 5, 0], [0, 0, 0]])
    values = {
        "recall": [0.8, 1.0, None],
        "precision": [1.0, 5 / 7, None],
        "confusion_matrix": counts.tolist(),
    }
    history = History(
        workdir=tmp_path,
        config=None,
        summary={"step": 1, "eval": values},
        model={"class_names": ["a", "b", "c"]},
    )
    page = make_page(history, Examples()).decode()
    confused, rows = re.findall(r"<tbody>(.*?)</tbody>", page, re.DOTALL)
    # F1: 2 * 0.8 * 1 / 1.8, 2 * 1 * 5/7 / (12/7).
    assert Elements(rows).text.split() == [
        *("a", "10", "80.0%", "100.0%", "88.9%"),
        *("b", "5", "100.0%", "71.4%", "83.3%"),
        *("c", "0", "-", "-", "-"),
    ]
    assert Elements(confused).text.split() == ["a", "b", "2", "20.0%"]
    assert re.findall(r">(\d+)</text>", page) == ["8", "2", "5"]


def test_the_page_tells_where_the_seconds_went(tmp_path: Path):
    seconds = {"setup": 30.0, "data_wait": 120.0, "step": 450.0, "lost": 0.0}
    history = a_run(tmp_path)
    history.summary.update(seconds=seconds, train_seconds=570.0)
    page = make_page(history, Examples()).decode()
    assert "training steps: 7 min 30 s, 75.0%" in page
    assert "waiting for data: 2 min 0 s, 20.0%" in page and "start: 30.0 s" in page
    assert "lost to restarts" not in page
    assert "waiting for data, 20% of the time: increase data.workers" in page


def a_run(workdir: Path, **data: Any) -> History:
    names = [f"class_{i}" for i in range(3)]
    values = {"loss": 0.5, "accuracy": 0.9, "top5_accuracy": 1.0, "num_examples": 30}
    sizes = {"train": 90, "validation": 10, "test": 30}
    return History(
        workdir=workdir,
        config=Config(),
        lines=[
            {"kind": "eval", "step": 1, "split": "validation", "top5_accuracy": 1.0},
            {"kind": "train", "step": 9, "loss": 0.4},
        ],
        summary={
            "step": 9,
            "eval": values,
            "best": {"step": 3, "metric": "macro_f1", "value": 0.875},
        },
        model={"class_names": names},
        data={
            "source": "folder:x",
            "num_examples": sizes,
            "digest": "d1",
            "class_names": names,
            "num_classes": 3,
            **data,
        },
    )


@each_row(
    ("data", "same"),
    [
        ({}, True),
        ({"source": "folder:moved"}, True),
        ({"num_examples": {"train": 80, "test": 30}}, True),
        ({"num_examples": {"train": 90, "test": 31}}, False),
        ({"digest": "d2"}, False),
        ({"digest": None, "source": "digits"}, False),
        ({"class_names": ["a", "b", "c"]}, False),
        ({"num_examples": None}, False),
    ],
)
def test_no_run_is_the_best_on_other_data(
    data: dict[str, Any], same: bool, tmp_path: Path
):
    one, other = a_run(tmp_path / "one"), a_run(tmp_path / "other", **data)
    other.summary["eval"] = {**other.summary["eval"], "accuracy": 0.8}
    page = make_comparison([one, other]).decode()
    assert ('class="best">0.9<' in page) == same
    assert ("Tested on different data than one" in page) != same
    assert "0.875 macro F1" in page


def test_examples_are_shown_as_their_task_draws_them(tmp_path: Path):
    drawn = DrawnExample(
        picture="data:image/png;base64,AAAA",
        name="<i>.png",
        loss=0.25,
        pictures={"<true>": "data:image/png;base64,BBBB"},
        texts={"boxes": "<script>[1 2]"},
        tiny=False,
    )
    sample = Sample(split="test", step=7, num_split=9, index=np.arange(4))
    examples = Examples(sample=sample, drawn=[drawn])
    page = make_page(History(workdir=tmp_path, config=None), examples).decode()
    told = (
        "4 of the 9 images of the test split, drawn at random, with the model of step"
    )
    assert f"Predictions for {told} 7. Click an image to enlarge it." in page
    assert "boxes: &lt;script&gt;[1 2]<br>" in page and "<b>loss 0.25</b>" in page
    assert "<figcaption>&lt;true&gt;</figcaption>" in page
    assert "&lt;i&gt;.<wbr>png" in page and "No mistake" not in page
    assert page.index("AAAA") < page.index("BBBB")


def test_templates_escape_whatever_they_print_and_lack_nothing():
    shown = templates.environment().from_string("<i>{{ name }}</i>{{ markup }}")
    values = {"name": "<b>&\x1b", "markup": Markup("<br>")}
    assert shown.render(values) == r"<i>&lt;b&gt;&amp;\x1b</i><br>"
    with pytest.raises(UndefinedError, match="'markup' is undefined"):
        shown.render(name="a")
    found = list((ROOT / "jaxtrain").rglob("*.html.j2"))
    assert len(found) > 4
    for path in found:
        assert not re.search(r"\bsafe\b|autoescape", path.read_text()), path


def test_a_wheel_has_all_files_of_the_package():
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folder = ROOT / "jaxtrain"
    files = {path for path in folder.rglob("*") if path.is_file()}
    patterns = table["package-data"]["jaxtrain"]
    packed = {path for pattern in patterns for path in folder.glob(pattern)}
    assert {path for path in files if path.suffix not in (".py", ".pyc")} == packed


def test_names_of_what_is_found_are_whole(tmp_path: Path):
    """Of a detector and of a regression, which have names and no classes."""
    run = a_run(tmp_path / "run")
    run.model.clear()
    run.model["column_names"] = ["bolt", "nut"]
    assert subject(run)[-1] == "bolt, nut"
    assert b"bolt, nut</div>" in make_page(run, Examples())

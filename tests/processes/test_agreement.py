"""Processes that were not started alike: all end before the first step, told why."""

import dataclasses
from typing import Any

import pytest

from jaxtrain.config import Config, DataConfig, TrainConfig, paths, shared_values
from jaxtrain.errors import UserError
from jaxtrain.processes import cluster
from jaxtrain.processes.cluster import Cluster
from jaxtrain.trainer import agreement
from tests.helpers.processes import Cli, end_all, two
from tests.helpers.recipes import EIGHT_STEPS, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.waiting import PATIENCE

OPTIONS = {"--fresh": False}


def started_alike(
    monkeypatch: pytest.MonkeyPatch, others: Config, **changes: Any
) -> None:
    """Compare a process with the defaults with another one, as if there were two."""
    sent: list[Any] = []
    monkeypatch.setattr(cluster, "_current", Cluster(0, 2))
    monkeypatch.setattr(Cluster, "gather", lambda _, x: sent.append(x) or [x])
    agreement.check_started_alike(others, OPTIONS)
    theirs = {**sent[0], **changes}
    monkeypatch.setattr(Cluster, "gather", lambda _, value: [value, theirs])
    agreement.check_started_alike(Config(), OPTIONS)


@each_row(
    ("others", "changes", "told"),
    [
        (
            Config(train=TrainConfig(epochs=5)),
            {},
            "train.epochs: 10 in process 0; 5 in process 1",
        ),
        (Config(seed=3), {}, "seed: 0 in process 0; 3 in process 1"),
        (Config(), {"--fresh": True}, "--fresh: False in process 0; True in process 1"),
        (
            Config(),
            {"version of jax": "0.1"},
            "version of jax: '[0-9.]+' in process 0; '0.1' in process 1",
        ),
        (Config(), {"local devices": 7}, "local devices: 1 in process 0; 7 in"),
        (Config(), {"sha256 of jaxtrain's source": "0"}, "source: '[0-9a-f]{64}' in"),
    ],
)
def test_what_differs_is_told(
    others: Config, changes: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(
        UserError, match=rf"started with different options:\n  .*{told}"
    ):
        started_alike(monkeypatch, others, **changes)


def test_processes_may_have_the_data_in_places_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
):
    started_alike(monkeypatch, Config(data=DataConfig(workers=3)))
    others = Config(data=DataConfig(source="folder:/disk2/photos"))
    started_alike(monkeypatch, others)
    # The same data, as far as is known: `digits` has no digest.
    data = {"source": "digits", "num_examples": {}, "num_classes": 2}
    data |= {"class_names": None, "digest": "1"}
    config = dataclasses.asdict(others)
    found: list[Any] = [[data, data]]
    monkeypatch.setattr(Cluster, "gather", lambda _, value: found.pop())
    agreement.check_same_data(others, data)
    assert not found
    unknown = {**data, "digest": None}
    fields = {"data.source": config["data"]["source"]}
    found += [[fields, {"data.source": "digits"}], [unknown, unknown]]
    with pytest.raises(UserError, match=r"data\.source: 'folder:.*; 'digits' in"):
        agreement.check_same_data(others, unknown)


def test_all_other_fields_are_compared():
    own = {"data.workers", "data.data_dir"}
    places = {f"data.{n}" for n in ("source", "include", "images_dir", "classes")}
    assert set(paths()) - set(shared_values(Config(), same_data=False)) == own
    assert set(shared_values(Config(), same_data=True)) == set(paths()) - own - places


def test_processes_of_one_value_are_told_together():
    found = [{"seed": 1 if i in (2, 5) else 0, "same": [1]} for i in range(9)]
    told = agreement.describe_differences(found)
    assert told == ["seed: 0 in process 0, 1, 3, 4, 6 and 2 more; 1 in process 2, 5"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "env", "told"),
    [
        ("--optimizer.learning-rate 1e-3", {}, "optimizer.learning_rate: 0.1 in"),
        (
            "--data.source synthetic:8x8x1/4/48",
            {},
            "differs between process 1 and process 0",
        ),
        ("--fresh", {}, "--fresh: False in process 0; True in process 1"),
        ("", {"JAX_NUM_CPU_DEVICES": 2}, "local devices: 1 in process 0; 2 in"),
    ],
)
def test_two_processes_that_differ_end_at_once(
    cli: Cli, words: str, env: dict[str, int], told: str
):
    config = write_recipe(cli.directory / "recipe.py", EIGHT_STEPS)
    first, second = two("--config", config, "--workdir", "run")
    variables: dict[str, Any] = {name: str(value) for name, value in env.items()}
    both = [cli.start(*first), cli.start(*second, *words.split(), **variables)]
    try:
        errors = [process.communicate(timeout=PATIENCE)[1] for process in both]
    finally:
        end_all(both)
    assert [process.returncode for process in both] == [2, 2], errors
    for text in errors:
        assert told in text and text.count("error:") == 1, errors
        assert "Traceback" not in text
    assert not (cli.directory / "run").exists()


@pytest.mark.slow
def test_workdirs_of_two_disks_are_refused(cli: Cli):
    config = write_recipe(cli.directory / "recipe.py", EIGHT_STEPS)
    first, second = two("--config", config)
    program = (
        "from jaxtrain.__main__ import run\nfrom jaxtrain.trainer import agreement\n"
        "agreement.LOOK_SECONDS = 0.5\nif __name__ == '__main__':\n    run()\n"
    )
    both = [
        cli.start(*first, "--workdir", "one", program=program),
        cli.start(*second, "--workdir", "two", program=program),
    ]
    errors = [process.communicate(timeout=PATIENCE)[1] for process in both]
    assert [process.returncode for process in both] == [2, 2], errors
    for text in errors:
        assert "process 1 does not find the run of process 0" in text
        assert "two/config.json cannot be read (No such file" in text

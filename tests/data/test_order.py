"""The data order: permutations, balanced groups, repeats, the same for ever."""

import shlex
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from jaxtrain.cli import main
from jaxtrain.data.order import DataOrder, epoch_order
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines
from tests.helpers.words import quoted


def order(seed: int, steps: range, num: int = 100, size: int = 32) -> np.ndarray:
    made = DataOrder(seed, num, size)
    return np.stack([made.indices(step) for step in steps])


def test_order_of_an_epoch_is_a_permutation_and_epochs_differ():
    first, second = order(0, range(3)), order(0, range(3, 6))
    for epoch in (first, second):
        assert len(set(epoch.ravel())) == 96  # No example twice in an epoch.
    assert (first != second).any()
    left_out = [set(range(100)) - set(e.ravel()) for e in (first, second)]
    assert left_out[0] != left_out[1]


def test_order_is_a_function_of_seed_and_step_alone():
    assert (order(7, range(20)) == order(7, range(20))).all()
    epoch_order.cache_clear()
    assert (order(7, range(13, 20)) == order(7, range(20))[13:]).all()
    assert (order(7, range(20)) != order(8, range(20))).any()


def test_order_never_changes():
    """What a seed means: a resumed run depends on these numbers."""
    assert DataOrder(0, 10, 5).indices(0).tolist() == [0, 2, 9, 1, 8]
    assert DataOrder(0, 10, 5).indices(1).tolist() == [5, 4, 3, 6, 7]
    assert DataOrder(3, 10, 5).indices(7).tolist() == [4, 2, 6, 1, 0]


def test_every_example_comes_equally_often_over_many_epochs():
    counts = np.bincount(order(1, range(3 * 50)).ravel(), minlength=100)
    # Each epoch leaves out 4 of 100: 50 * 0.96 = 48 on average, deviation 1.4.
    assert counts.sum() == 50 * 96
    assert counts.min() > 48 - 7


GROUPS = np.array([0] * 70 + [5] * 20 + [9] * 7)


def balanced(seed: int = 0) -> DataOrder:
    return DataOrder(seed, 97, 10, groups=GROUPS)


def test_balanced_epochs_have_as_many_of_each_group():
    steps = np.stack([balanced().indices(step) for step in range(9 * 20)])
    epochs = steps.reshape(20, 90)
    shares = [(GROUPS[epochs] == group).mean() for group in (0, 5, 9)]
    np.testing.assert_allclose(shares, 1 / 3, atol=0.01)
    per_batch = (GROUPS[steps] == 9).sum(axis=1)
    # Spread over the epoch: 10 draws at 1/3 have 3.3 on average, deviation 1.5.
    assert per_batch.min() <= 1 and per_batch.max() >= 6


def test_every_example_of_a_group_comes_equally_often():
    order = balanced()
    whole = np.concatenate([order.make_epoch(epoch) for epoch in range(7)])
    counts = np.bincount(whole, minlength=97)
    for group in (0, 5, 9):
        some = counts[group == GROUPS]
        assert some.max() - some.min() <= 1
    # A third of 7 x 97 draws for 7 examples, 33 times each.
    assert counts[GROUPS == 9].min() >= 31


def test_a_balanced_order_is_a_function_of_seed_and_step_alone():
    forwards = [balanced().indices(step).tolist() for step in range(30)]
    order = balanced()
    assert [order.indices(s).tolist() for s in reversed(range(30))] == forwards[::-1]
    assert forwards[0] != balanced(1).indices(0).tolist()
    # What a seed means: a resumed run depends on it.
    small = DataOrder(3, 6, 3, groups=np.array([0, 0, 0, 0, 1, 1]))
    assert [small.indices(step).tolist() for step in range(2)] == [[5, 1, 3], [2, 4, 5]]


def test_repeated_examples_are_in_one_batch():
    plain, repeated = DataOrder(4, 100, 12), DataOrder(4, 100, 12, repeats=3)
    first = repeated.indices(0)
    assert (first == np.repeat(plain.indices(0)[:4], 3)).all()
    epoch = np.concatenate([repeated.indices(step) for step in range(8)])
    assert len(set(epoch.tolist())) == 32
    assert not set(repeated.indices(8)) <= set(epoch.tolist())


@hypothesis.given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    seed=st.integers(0, 2**31),
    repeats=st.integers(2, 4),
    groups_in_batch=st.integers(1, 4),
    first=st.integers(0, 20),
    num_epochs=st.integers(1, 3),
)
@hypothesis.settings(deadline=None)
def test_balanced_groups_and_their_examples_are_repeated_equally_often(
    sizes: list[int],
    seed: int,
    repeats: int,
    groups_in_batch: int,
    first: int,
    num_epochs: int,
):
    """Over one epoch and over several in a row, to one draw."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    batch_size = repeats * groups_in_batch
    hypothesis.assume(batch_size <= len(groups))
    order = DataOrder(seed, len(groups), batch_size, groups=groups, repeats=repeats)
    steps = len(groups) // batch_size
    drawn = [
        order.indices(step)
        for step in range(first * steps, (first + num_epochs) * steps)
    ]
    counts, rest = np.divmod(
        np.bincount(np.concatenate(drawn), minlength=len(groups)), repeats
    )
    assert not rest.any()
    assert counts.sum() == num_epochs * steps * groups_in_batch
    of_groups = [counts[groups == group] for group in range(len(sizes))]
    assert all(np.ptp(some) <= 1 for some in of_groups)
    assert np.ptp([some.sum() for some in of_groups]) <= 1


def test_balanced_repeats_spread_over_the_epoch():
    made = DataOrder(0, 97, 10, groups=GROUPS, repeats=2)
    batches = np.stack([made.indices(step) for step in range(9 * 4)])
    assert (batches[:, ::2] == batches[:, 1::2]).all()
    per_batch = (GROUPS[batches] == 9).sum(axis=1)
    assert per_batch.min() < per_batch.max()
    # What a seed means.
    small = DataOrder(3, 8, 4, groups=np.array([0, 0, 0, 0, 0, 0, 1, 1]), repeats=2)
    assert [small.indices(step).tolist() for step in range(2)] == [
        [6, 6, 1, 1],
        [7, 7, 3, 3],
    ]


def test_copies_of_an_example_are_numbered():
    assert DataOrder(4, 100, 12, repeats=3).copies(
        np.array([7, 7, 7, 2, 2, 2])
    ).tolist() == [0, 1, 2, 0, 1, 2]
    order = balanced()
    assert order.copies(np.array([3, 9, 3, 3, 9, 1])).tolist() == [0, 0, 1, 2, 1, 0]


RUN = recipe(
    data='DataConfig(source="synthetic:8x8x1/4/96", batch_size=12)',
    model='ConvNetConfig(name="convnet", width=0.25)',
    train="TrainConfig(steps=10, eval_every_steps=5)",
    checkpoint="CheckpointConfig(every_steps=5)",
    logging="LoggingConfig(every_steps=1, tensorboard=False)",
)
BALANCED = "--data.sampling balanced"
CROP = "--data.augment.random-resized-crop True --data.image-size 6"


# With and without what is tried; the last with windows that the host draws.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "without"),
    [
        pytest.param(
            f"--data.repeats 2 {CROP} {BALANCED}",
            f"{CROP} {BALANCED}",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_run_is_the_same_resumed_and_streamed(
    words: str, without: str, tmp_path: Path
):
    config = write_recipe(tmp_path / "run.py", RUN)

    def losses(name: str, words: str, *calls: str) -> list[float]:
        for call in calls:
            more = (
                f"--config {quoted(config)} --workdir "
                f"{quoted(tmp_path / name)} {words} {call}"
            )
            assert main(shlex.split(more)) == 0
        return [line["loss"] for line in read_lines(tmp_path / name, "train")]

    whole = losses("whole", words, "--data.cache stream")
    resumed = losses("resumed", words, "--train.stop-after-steps 4", "")
    assert resumed == pytest.approx(whole, rel=1e-5)
    assert losses("without", without, "") != whole


def test_repeats_that_do_not_fit_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = write_recipe(tmp_path / "run.py", RUN)
    head = f"--config {quoted(config)} --workdir {quoted(tmp_path / 'run')}"
    assert main(shlex.split(f"{head} --data.repeats 5")) == 2
    assert "does not divide data.batch_size = 12" in capsys.readouterr().err

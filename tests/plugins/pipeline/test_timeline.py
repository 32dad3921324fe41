"""The order of a pipeline's passes, the idle share, and how a model is cut."""

import itertools

import numpy as np

from jaxtrain.plugins.pipeline.cut import balance
from jaxtrain.plugins.pipeline.timeline import Op, simulate, stage_order
from tests.helpers.rows import each_row

SIZES = [(1, 3), (2, 1), (2, 4), (3, 2), (4, 4), (4, 8), (5, 3)]


@each_row(("num_stages", "num_micro"), SIZES)
def test_every_pass_comes_once_and_after_what_it_needs(num_stages: int, num_micro: int):
    costs = np.random.default_rng(num_stages).uniform(1, 3, num_stages)
    ops = simulate(list(costs), num_micro).ops
    assert len(set(ops)) == len(ops) == 2 * num_stages * num_micro
    place = {op: i for i, op in enumerate(ops)}
    for (stage, kind, micro), i in place.items():
        if kind == "backward":
            assert place[Op(stage, "forward", micro)] < i
            after = Op(stage + 1, "backward", micro)
        else:
            after = Op(stage - 1, "forward", micro)
        if after in place:
            assert place[after] < i
    for stage in range(num_stages):
        mine = [op for op in ops if op.stage == stage]
        assert mine == stage_order(stage, num_stages, num_micro)


@each_row(("num_stages", "num_micro"), SIZES)
def test_idle_share_of_equal_stages_is_the_formula(num_stages: int, num_micro: int):
    expected = (num_stages - 1) / (num_micro + num_stages - 1)
    idle_share = simulate([7.0] * num_stages, num_micro).idle_share
    np.testing.assert_allclose(idle_share, expected, atol=1e-12)


def test_idle_share_of_unequal_stages_by_hand():
    """Forward passes of 1 and 2, backward of 2 and 4: stage 1 waits for stage 2."""
    # One micro-batch: 1 + 2 + 4 + 2 = 9 long, 9 of 18 worked.
    np.testing.assert_allclose(simulate([1.0, 2.0], 1).idle_share, 0.5)
    # Two: stage 2 works from 1 to 13, then stage 1 to 15; 18 of 30 worked.
    np.testing.assert_allclose(simulate([1.0, 2.0], 2).idle_share, 0.4)


def test_balance_is_that_of_brute_force():
    rng = np.random.default_rng(0)
    for num_costs in range(1, 8):
        costs = list(rng.integers(1, 20, num_costs).astype(float))
        for num_parts in range(1, num_costs + 1):
            parts = balance(costs, num_parts)
            assert [i for p in parts for i in range(num_costs)[p]] == [
                *range(num_costs)
            ]
            assert len(parts) == num_parts
            assert all(costs[part] for part in parts)
            best = min(
                max(
                    sum(costs[a:b])
                    for a, b in itertools.pairwise((0, *cuts, num_costs))
                )
                for cuts in itertools.combinations(range(1, num_costs), num_parts - 1)
            )
            assert max(sum(costs[part]) for part in parts) == best

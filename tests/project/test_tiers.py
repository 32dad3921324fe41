"""Tiers of tests: each value of a table is seen before a change lands."""

import itertools

import pytest

from tests.helpers.tiers import diagonal, share, thinned


def tier(row) -> str:
    (mark,) = row.marks
    return mark.name


def test_a_diagonal_has_every_value_of_each_table():
    methods, options = ["a", "b"], ["x", pytest.param({}, id="y"), "z"]
    rows = diagonal(methods, options)
    assert [row.id for row in rows] == ["a-x", "a-y", "a-z", "b-x", "b-y", "b-z"]
    assert rows[1].values == ("a", {})
    slow = [row.id for row in rows if tier(row) == "slow"]
    assert slow == ["a-x", "a-z", "b-y"]
    assert {tier(row) for row in rows if row.id not in slow} == {"exhaustive"}


def test_of_a_thinned_table_the_first_row_of_each_few_is_slow():
    rows = thinned(2, [("a", 1), ("b", 2), ("c", 3)])
    assert [row.values for row in rows] == [("a", 1), ("b", 2), ("c", 3)]
    assert [tier(row) for row in rows] == ["slow", "exhaustive", "slow"]


def test_parts_share_the_tests():
    items = list(range(10))
    parts = [share(items, f"{k}/3") for k in (1, 2, 3)]
    assert sorted(itertools.chain(*parts)) == items
    assert {*map(len, parts)} == {3, 4}
    assert share(items, "1/1") == items

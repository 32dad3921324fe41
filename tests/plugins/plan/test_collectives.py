"""Collectives as they are found in programs, against programs known by construction."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from jaxtrain.config import Preset
from jaxtrain.plugins.plan.collectives import (
    Collective,
    minimum_bytes,
    summarize,
)
from jaxtrain.plugins.plan.program import read_program
from tests.helpers.processes import ROOT
from tests.helpers.rows import each_row

# On 8 devices, in meshes (8,) and (2, 4); x is float32 (64, 16), 4096 bytes.
PROGRAM = """
import json

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P

from jaxtrain.plugins.plan.program import read_program

line = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))
grid = jax.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
x = jnp.zeros((64, 16))
ring = [(i, (i + 1) % 8) for i in range(8)]


def mapped(f, mesh, start, end):
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=start, out_specs=end,
                                 check_vma=False))


programs = {
    "psum": mapped(lambda x: lax.psum(x, "d"), line, P("d"), P()),
    "psum_a": mapped(lambda x: lax.psum(x, "a"), grid, P(), P()),
    "psum_b": mapped(lambda x: lax.psum((x, x[0]), "b"), grid, P(), P()),
    "all_gather": mapped(lambda x: lax.all_gather(x, "d"), line, P("d"), P()),
    "psum_scatter": mapped(
        lambda x: lax.psum_scatter(x, "b", tiled=True), grid, P(), P("b")),
    "all_to_all": mapped(
        lambda x: lax.all_to_all(x, "d", 1, 0, tiled=True), line, P("d"), P("d")),
    "ppermute": mapped(lambda x: lax.ppermute(x, "d", ring), line, P("d"), P("d")),
    "jit": jax.jit(
        lambda x: x.sum(0),
        in_shardings=jax.NamedSharding(grid, P(("a", "b"))),
        out_shardings=jax.NamedSharding(grid, P()),
    ),
    "none": mapped(lambda x: 2 * x, line, P("d"), P("d")),
}
print(json.dumps({
    name: [[c.kind, c.dtype, c.bytes, len(c.group)]
           for c in read_program(f.lower(x).compile().as_text()).collectives]
    for name, f in programs.items()
}))
"""


@pytest.fixture(scope="module")
def on_eight_devices() -> dict[str, list[Any]]:
    env = {**os.environ, "JAX_NUM_CPU_DEVICES": "8", "PYTHONPATH": str(ROOT)}
    output = subprocess.check_output([sys.executable, "-c", PROGRAM], env=env)
    return json.loads(output)


@pytest.mark.slow
@each_row(
    ("name", "expected"),
    [
        ("psum", ["all-reduce", "f32", 4096 // 8, 8]),
        ("psum_a", ["all-reduce", "f32", 4096, 2]),
        ("psum_b", ["all-reduce", "f32", 4096 + 64, 4]),
        ("all_gather", ["all-gather", "f32", 4096, 8]),
        ("psum_scatter", ["reduce-scatter", "f32", 4096, 4]),
        ("all_to_all", ["all-to-all", "f32", 4096 // 8, 8]),
        ("ppermute", ["collective-permute", "f32", 4096 // 8, 8]),
        ("jit", ["all-reduce", "f32", 64, 8]),
        ("none", None),
    ],
)
def test_programs_on_eight_devices(
    on_eight_devices: dict[str, list[Any]], name: str, expected: list[Any] | None
):
    assert on_eight_devices[name] == ([expected] if expected else [])


# (line, kind, dtype, bytes, first group), as XLA writes them for GPUs.
LINES = [
    (
        "%all-reduce-start.1 = (f32[8,4]{1,0}, f32[2]{0}) all-reduce-start(%a, %b), "
        "replica_groups={{0,1},{2,3}}, to_apply=%add",
        Collective("all-reduce", "f32", 4 * 34, (0, 1)),
    ),
    (
        "ROOT %s = (bf16[4,8]{1,0:T(8,128)}, bf16[16,8]{1,0}) all-gather-start("
        "bf16[4,8]{1,0} %a), replica_groups=[2,4]<=[8], dimensions={0}",
        Collective("all-gather", "bf16", 256, (0, 1, 2, 3)),
    ),
    (
        "%s = ((f32[4]{0}, bf16[4]{0}), (f32[8]{0}, bf16[8]{0})) all-gather-start("
        "%a, %b), replica_groups=[4,2]<=[2,4]T(1,0), dimensions={0}",
        Collective("all-gather", "f32+bf16", 48, (0, 4)),
    ),
    (
        "%s = ((f32[16]{0}), f32[4]{0}, u32[]) reduce-scatter-start(%a), "
        "replica_groups={{0,1,2,3}}, dimensions={0}, to_apply=%add",
        Collective("reduce-scatter", "f32", 64, (0, 1, 2, 3)),
    ),
    (
        "%s = ((s8[16]{0}, s8[16]{0}), (s8[16]{0}, s8[16]{0})) all-to-all-start("
        "%a, %b), replica_groups={{0,1}}",
        Collective("all-to-all", "s8", 32, (0, 1)),
    ),
    (
        "%s = (f16[3,5]{1,0}, f16[3,5]{1,0}, u32[], u32[]) collective-permute-start("
        "%a), source_target_pairs={{0,1},{1,2}}",
        Collective("collective-permute", "f16", 30, (0, 1, 2)),
    ),
    (
        "%s = (f32[], f32[], f32[], f32[], f32[], /*index=5*/f32[]) all-reduce(%a, "
        "%b, %c, %d, %e, /*index=5*/%f), replica_groups={}, to_apply=%add",
        Collective("all-reduce", "f32", 24, tuple(range(8))),
    ),
    (
        "%s = pred[4]{0} all-reduce(%a), replica_groups=mesh['x'=2,'y'=4], "
        "device_ids=([4,2]T(1,0)) {'y'}, to_apply=%or",
        Collective("all-reduce", "pred", 4, (0, 2, 4, 6)),
    ),
    (
        "%s = f32[4]{0} all-reduce(%a), replica_groups=mesh['x'=2,'y'=8] "
        "{'x','y':(1)2}, to_apply=%add",
        Collective("all-reduce", "f32", 16, (0, 4, 8, 12)),
    ),
]


def collectives_of(line: str) -> list[Collective]:
    header = "HloModule jit_step, is_scheduled=true, num_partitions=8\n\n"
    return read_program(f"{header}ENTRY %main {{\n  {line}\n}}\n").collectives


@each_row(("line", "expected"), LINES)
def test_forms_of_the_text(line: str, expected: Collective):
    assert collectives_of(line) == [expected]


@each_row(
    "line",
    [
        "%d = f32[8]{0} all-reduce-done(%all-reduce-start)",
        "%d = f32[8]{0} all-gather-done((f32[4]{0}, f32[8]{0}) %all-gather-start)",
        "%g = f32[8]{0} get-tuple-element(%all-reduce), index=0",
        '%f = f32[8]{0} fusion(%a), metadata={op_name="x = f32[8] all-reduce(y)"}',
        "%s = f32[8]{0} all-reduce(%a), replica_groups={{0},{1}}, to_apply=%add",
        "%s = f32[8]{0} all-reduce(%a), replica_groups=[8,1]<=[8], to_apply=%add",
        "%s = f32[8]{0} collective-permute(%a), source_target_pairs={{0,0},{1,1}}",
    ],
)
def test_what_exchanges_nothing_is_not_counted(line: str):
    assert collectives_of(line) == []


def test_groups_that_cannot_be_read_are_an_error():
    with pytest.raises(ValueError, match=r"replica_groups: %s = .*<what>"):
        collectives_of("%s = f32[8]{0} all-reduce(%a), replica_groups=<what>")


def test_sums_and_ring_formulas():
    found = [
        Collective("all-reduce", "f32", 800, tuple(range(8))),
        Collective("all-reduce", "f32", 80, tuple(range(2))),
        Collective("all-gather", "f32", 400, tuple(range(4))),
        Collective("reduce-scatter", "f32", 400, tuple(range(4))),
        Collective("all-to-all", "f32", 40, tuple(range(4))),
        Collective("collective-permute", "f32", 7, tuple(range(8))),
    ]
    assert summarize(found)["all-reduce"] == {
        "count": 2,
        "bytes": 880,
        "dtypes": ["f32"],
        "overlapped": 0.0,
    }
    assert list(summarize(found[3:4])) == ["reduce-scatter"]
    # 2 * 7/8 * 800, 2 * 1/2 * 80, 3/4 * 400, 3/4 * 400, 3/4 * 40, 7
    assert [c.wire_bytes for c in found] == [1400, 80, 300, 300, 30, 7]


@each_row(
    ("mesh", "preset", "expected"),
    [
        ({}, "data_parallel", 0),
        ({"data": 8}, "data_parallel", 2 * 7 / 8 * 960),
        ({"fsdp": 8}, "fsdp", 3 * 7 / 8 * 960),
        ({"fsdp": 8}, "zero1", 2 * 7 / 8 * 960),
        # What fsdp leaves of the gradients is then reduced over the rest.
        ({"data": 2, "fsdp": 4}, "fsdp", 3 * 3 / 4 * 960 + 2 * 1 / 2 * 960 / 4),
        ({"data": 2, "fsdp": 4}, "zero1", 2 * 3 / 4 * 960 + 2 * 1 / 2 * 960 / 4),
        ({"data": 2, "spatial": 2, "spatial_width": 2}, "spatial", 2 * 7 / 8 * 960),
        ({"model": 8}, "tensor", 0),
        ({"fsdp": 4, "model": 2}, "2d", 3 * 3 / 4 * 960),
    ],
)
def test_minimum(mesh: dict[str, int], preset: Preset, expected: float):
    assert minimum_bytes(mesh, 960, preset) == expected

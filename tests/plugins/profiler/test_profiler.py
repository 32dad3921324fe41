"""A profile names the slowest layer, and its shares are those of all traced time."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jax.profiler import ProfileData

from jaxtrain import scopes
from jaxtrain.json_files.run_id import RunId
from jaxtrain.plugins.profiler.device_trace import Span, device_ops, divide_time
from jaxtrain.plugins.profiler.layer_times import tabulate
from jaxtrain.plugins.profiler.step_profile import LayerTime, StepProfile, read_profile
from jaxtrain.records.workdir import TENSORBOARD
from tests.helpers.processes import Cli, run_two
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row

MODEL = """
from flax import nnx

from jaxtrain.models.base import Model
from jaxtrain.models.head import Head, mean_head


class Block(nnx.Module):
    def __init__(self, layers):
        self.heavy = layers.conv(16, 16, 15)
        self.light = layers.conv(16, 16, 1)

    def __call__(self, x, rngs):
        return nnx.relu(x + self.light(self.heavy(x)))


class Lopsided(Model):
    def __init__(self, image_shape, num_outputs, *, layers):
        self.add_piece(
            lambda conv, norm, x, rngs: norm(conv(x), relu=True),
            stem=layers.conv(image_shape[2], 16, 1),
            stem_norm=layers.batch_norm(16),
        )
        self.add_piece(Block.__call__, block=Block(layers))
        self.add_piece(mean_head, head=Head(16, num_outputs, 0.0, layers=layers))
"""
RECIPE = recipe(
    data='DataConfig(source="synthetic:16x16x1/4/256", batch_size=32)',
    model='CustomModelConfig(name="lopsided.py:Lopsided")',
    train="TrainConfig(steps=6)",
    checkpoint="CheckpointConfig(every_steps=6)",
    logging="LoggingConfig(every_steps=6, tensorboard=False, report=True)",
)
TRAIN = ("--config", "recipe.py", "--workdir", "run")


def write_files(folder: Path) -> None:
    (folder / "lopsided.py").write_text(MODEL)
    write_recipe(folder / "recipe.py", RECIPE)


def read(folder: Path) -> StepProfile:
    profile = read_profile(folder / "run", RunId.read(folder / "run"))
    assert profile is not None
    return profile


def traces(folder: Path) -> list[str]:
    found = (folder / "run" / TENSORBOARD).glob("plugins/profile/*/*.xplane.pb")
    return sorted(path.parent.name for path in found)


@pytest.mark.slow
def test_the_slowest_layer_comes_first_and_a_run_goes_on_with_other_steps(cli: Cli):
    write_files(cli.directory)
    result = cli.done("train", *TRAIN, "--profile")
    profile = read(cli.directory)
    # Half of the run is left for the trace: ten steps do not fit.
    assert profile.steps == (3, 6) and traces(cli.directory) == ["steps_3_to_6"]
    assert profile.layers[0].layer == "block/heavy"
    passes = {row.direction for row in profile.layers if row.layer == "block/heavy"}
    assert passes == {"forward", "backward"}
    assert {"stem", "stem_norm", "block/light", "block/rest", "optimizer"} <= {
        row.layer for row in profile.layers
    }
    assert sum(row.share for row in profile.layers) == pytest.approx(1)
    assert 0 <= profile.idle_share < 1
    busy = profile.milliseconds * (1 - profile.idle_share)
    assert sum(row.milliseconds for row in profile.layers) == pytest.approx(busy)
    assert "block/heavy" in result.stdout and "run/profile.json" in result.stdout
    assert "Where the time goes" in (cli.directory / "run/report.html").read_text()
    # Other steps, several a call: whole calls are profiled.
    longer = ("--train.steps", 10, "--train.steps-per-call", 2)
    later = ("--train.profile-steps", 8, 9)
    cli.done("train", *TRAIN, *longer, *later)
    assert read(cli.directory).steps == (7, 9)
    # They are past.
    longer = ("--train.steps", 11, "--train.profile-steps", 2, 4)
    result = cli("train", *TRAIN, *longer)
    assert result.code == 0 and "no step is profiled" in result.stderr
    assert read(cli.directory).steps == (7, 9)


@pytest.mark.slow
@each_row(
    ("words", "message"),
    [
        ("--train.profile-steps 4 4", "profile_steps = .*two increasing numbers"),
        ("--train.profile-steps 4 9", r"profile_steps = \(4, 9\): the run has 6 steps"),
        ("--profile --train.profile-steps 2 4", "--profile with train.profile_steps"),
        ("--profile --parallel.pipeline-stages 2", "--profile with .*_stages = 2"),
    ],
)
def test_steps_that_cannot_be_profiled_are_refused(words: str, message: str, cli: Cli):
    write_files(cli.directory)
    result = cli("train", *TRAIN, *words.split())
    assert result.code == 2
    assert re.search(message, result.stderr), result.stderr


def test_a_moment_is_shared_by_those_of_the_lowest_rank():
    spans = [
        Span(0, 10, 0, "kernel"),
        Span(4, 8, 0, "other"),
        Span(0, 30, 2, "loop"),
        Span(8, 20, 1, "threads"),
        Span(40, 41, 0, "kernel"),
    ]
    times = divide_time(spans)
    assert times == {"kernel": 4 + 2 + 2 + 1, "other": 2, "threads": 10, "loop": 10}


# A step of a forward and a backward product, a loop of two passes, an update, a sum
# over devices, and a copy that the compiler has put in.
PROGRAM = """HloModule jit_step, is_scheduled=true, num_partitions=2

%inner (p: f32[8,8]) -> f32[8,8] {
  %p = f32[8,8]{1,0} parameter(0)
  %product = f32[8,8]{1,0} dot(%p, %p), lhs_contracting_dims={1}, \
rhs_contracting_dims={0}, metadata={op_name="jit(step)/jvp(part:loss)/layer:a.b/dot"}
  ROOT %relu = f32[8,8]{1,0} negate(%product), \
metadata={op_name="jit(step)/jvp(part:loss)/layer:a.rest/neg"}
}

%body (q: f32[8,8]) -> f32[8,8] {
  %q = f32[8,8]{1,0} parameter(0)
  ROOT %again = f32[8,8]{1,0} negate(%q), \
metadata={op_name="jit(step)/transpose(jvp(part:loss))/layer:a.b/neg"}
}

%condition (r: f32[8,8]) -> pred[] {
  %r = f32[8,8]{1,0} parameter(0)
  ROOT %less = pred[] constant(true)
}

ENTRY %main (x: f32[8,8]) -> f32[8,8] {
  %x = f32[8,8]{1,0} parameter(0)
  %fused = f32[8,8]{1,0} fusion(%x), kind=kOutput, calls=%inner
  %copy.1 = f32[8,8]{0,1} copy(%fused)
  %loop = f32[8,8]{1,0} while(%copy.1), condition=%condition, body=%body, \
backend_config={"known_trip_count":{"n":"2"}}
  %sum = f32[8,8]{1,0} all-reduce(%loop), replica_groups={{0,1}}, to_apply=%add
  ROOT %new = f32[8,8]{1,0} negate(%sum), \
metadata={op_name="jit(step)/part:optimizer/n"}
}
"""


def gpu_trace(*kernels: tuple[str, int, int], module: str = "jit_step") -> Any:
    """Return a trace of a GPU: instructions, "" for a copy, and microseconds."""
    events = "".join(
        f"events {{ metadata_id: 1 offset_ps: {start}000000 "
        f"duration_ps: {(end - start)}000000 "
        + (
            f'stats {{ metadata_id: 1 str_value: "{op}" }} '
            f'stats {{ metadata_id: 2 str_value: "{module}" }} '
            if op
            else ""
        )
        + "}\n"
        for op, start, end in kernels
    )
    names = "".join(
        f'stat_metadata {{ key: {i} value {{ id: {i} name: "{name}" }} }}\n'
        for i, name in ((1, "hlo_op"), (2, "hlo_module"))
    )
    kernel = 'event_metadata { key: 1 value { id: 1 name: "kernel" } }\n'
    sums = 'lines { name: "XLA Modules" events { metadata_id: 1 duration_ps: 9 } }\n'
    text = (
        f'planes {{ name: "/device:GPU:0"\nlines {{ name: "Stream #7"\n{events}}}\n'
        f"{sums}{kernel}{names}}}\n"
    )
    return ProfileData.from_serialized_xspace(
        ProfileData.text_proto_to_serialized_xspace(text)
    )


def test_the_kernels_of_a_gpu_have_the_rows_of_their_instructions():
    ops = device_ops(
        gpu_trace(
            ("fused", 0, 10),
            ("copy.1", 10, 12),
            ("loop::again", 12, 15),
            ("loop::again", 15, 18),
            ("sum", 20, 24),
            ("new", 24, 26),
            ("", 26, 27),
            ("unheard_of", 27, 30),
        )
    )
    profile = tabulate(ops, [PROGRAM], steps=(4, 5), device_kind="a GPU", trace="t")
    assert profile.num_devices == 1 and profile.milliseconds == pytest.approx(0.030)
    assert profile.idle_share == pytest.approx(2 / 30)
    found = {(row.layer, row.direction): row for row in profile.layers}
    microseconds = {key: 1e3 * row.milliseconds for key, row in found.items()}
    # The fusion counts for its product, not for what follows it.
    assert microseconds == pytest.approx(
        {
            ("a/b", "forward"): 12,
            ("a/b", "backward"): 6,
            ("collectives", None): 4,
            ("other", None): 4,
            ("optimizer", None): 2,
        }
    )
    product = found["a/b", "forward"]
    assert product.flops == pytest.approx(2 * 8**3 / 12e-6)
    # The fusion and the copy read 256 bytes, and write as many.
    assert product.bytes == pytest.approx(1024 / 12e-6)
    assert found["a/b", "backward"].bytes == pytest.approx(2 * 512 / 6e-6)


def test_programs_of_something_else_have_a_row_of_their_own():
    ops = device_ops(gpu_trace(("fused", 0, 10), module="jit_eval_step"))
    profile = tabulate(ops, [PROGRAM], steps=(0, 2), device_kind="a GPU", trace="t")
    expected = LayerTime(
        layer="other programs",
        direction=None,
        milliseconds=0.005,
        share=1.0,
        flops=None,
        bytes=None,
    )
    assert profile.layers == (expected,)


@each_row(
    ("op_name", "expected"),
    [
        ("jit(f)/jvp(part:loss)/layer:a.b/dot", ("a/b", True, False)),
        ("jit(f)/transpose(jvp(part:loss))/layer:a/layer:a.b/t", ("a/b", True, True)),
        ("jit(f)/jvp(layer:a)/rematted_computation/exp", ("a", True, True)),
        ("jit(f)/part:loss/model:teacher/layer:a/dot", ("teacher", False, False)),
        ("jit(f)/part:optimizer/add", ("optimizer", False, False)),
        ("jit(f)/convert_element_type", None),
    ],
)
def test_the_innermost_scope_counts(
    op_name: str, expected: tuple[str, bool, bool] | None
):
    assert scopes.parse_scope(op_name) == expected


@pytest.mark.exhaustive
def test_each_process_has_its_trace_and_the_first_writes_the_table(tmp_path: Path):
    write_files(tmp_path)
    result = run_two(tmp_path, "train", *TRAIN, "--train.profile-steps", 2, 4)
    assert result.code == 0, result.stderr
    assert traces(tmp_path) == ["steps_2_to_4", "steps_2_to_4_process1"]
    profile = json.loads((tmp_path / "run" / "profile.json").read_text())
    assert profile["trace"].endswith("steps_2_to_4")
    layers = [row["layer"] for row in profile["layers"]]
    # Collectives wait for the other process, however long that takes.
    assert "collectives" in layers
    assert next(name for name in layers if name != "collectives") == "block/heavy"

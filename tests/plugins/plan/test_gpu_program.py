"""What must hold of the program that a GPU runs, at whatever speed."""

import dataclasses
import re
from typing import Any

import pytest

from jaxtrain.config import (
    Config,
    DataConfig,
    ParallelConfig,
    ResNetConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.plugins.plan import gpu_compiler
from jaxtrain.plugins.plan.collectives import Collective
from jaxtrain.plugins.plan.program import Instruction, read_program
from jaxtrain.plugins.plan.targets import parse_target
from jaxtrain.plugins.pruning.config import PruneConfig
from tests.helpers.needs import need
from tests.plugins.plan.gpu_programs import Step, compile_evaluations, compile_steps

pytestmark = [pytest.mark.gpu_compiler, pytest.mark.xdist_group("gpu_program")]

# Of a device; no layer has as many channels, so that arrays of a batch can be told.
BATCH, SIZE = 24, 224


def recipe(**parallel: Any) -> Config:
    num_devices = parallel.pop("num_devices", 1)
    return Config(
        precision="bf16",
        data=DataConfig(
            source=f"synthetic:{SIZE}x{SIZE}x3/1000",
            batch_size=BATCH * num_devices,
            cache="stream",
        ),
        model=ResNetConfig(name="resnet18"),
        optimizer=SGDConfig(learning_rate=0.1, momentum=0.9),
        parallel=ParallelConfig(**parallel),
        train=TrainConfig(steps=10),
    )


EIGHT = {
    "data_parallel": recipe(num_devices=8, batch_norm=BATCH),
    "bfloat16": recipe(num_devices=8, batch_norm=BATCH, reduce_dtype="bfloat16"),
    "fsdp": recipe(num_devices=8, batch_norm=BATCH, preset="fsdp"),
}


def compiled(target: str, *configs: Config) -> list[Step]:
    need(gpu_compiler.COMPILER)
    parsed = parse_target(target)
    return gpu_compiler.call(parsed, compile_steps, configs, parsed)


@pytest.fixture(scope="module")
def alone() -> Step:
    return compiled("h100", recipe())[0]


@pytest.fixture(scope="module")
def on_eight() -> dict[str, Step]:
    return dict(zip(EIGHT, compiled("h100x8", *EIGHT.values()), strict=True))


def activations(step: Step) -> list[tuple[Instruction, str, str]]:
    """List dtype and layout of what kernels write of a batch of images or features."""
    shape = re.compile(rf"\b(\w+)\[{BATCH},\d+,\d+,\d+\](?:\{{([\d,]*)[^}}]*\}})?")
    return [
        (kernel.instruction, dtype, layout)
        for kernel in read_program(step.text).kernels
        for dtype, layout in shape.findall(kernel.instruction.type)
    ]


def test_activations_are_never_transposed(alone: Step):
    found = activations(alone)
    assert len(found) > 40
    # NHWC, the last dim in neighbouring places, everywhere.
    assert {layout for _, _, layout in found} == {"3,2,1,0"}
    names = [i.name for i, _, _ in found]
    assert not [n for n in names if "transpose" in n or n.startswith("copy")]


def test_activations_are_bfloat16(alone: Step):
    # int8: where a max pool found its maximum.
    assert {dtype for _, dtype, _ in activations(alone)} <= {"bf16", "s8", "u8"}


def test_the_sums_of_norms_are_kernels_of_their_own(alone: Step):
    found = [kernel.instruction for kernel in read_program(alone.text).kernels]
    sums = [i for i in found if "reduce" in i.name and "part:optimizer" in i.text]
    # Merged with others they came out wrong on a GPU: see `kernels.squares`.
    assert len(sums) > 20
    assert not [i.name for i in sums if i.type.startswith("(")]


def test_the_state_is_donated(alone: Step, on_eight: dict[str, Step]):
    for step in (alone, *on_eight.values()):
        assert step.donated_bytes == step.state_bytes


def test_nothing_goes_to_the_host_or_comes_from_it(
    alone: Step, on_eight: dict[str, Step]
):
    for step in (alone, *on_eight.values()):
        lines = [
            line
            for computation in read_program(step.text).computations.values()
            for line in computation.values()
        ]
        operations = {line.operation for line in lines}
        assert not operations & {"infeed", "outfeed", "send", "recv"}
        targets = {line.attribute("custom_call_target") for line in lines}
        assert not [name for name in targets if "callback" in name.lower()]
        # The memory of the host, in XLA's layouts.
        assert "S(5)" not in step.text


def test_evaluation_has_one_kernel_for_a_convolution_its_norm_sum_and_relu():
    need(gpu_compiler.COMPILER)
    target = parse_target("h100")
    (text,) = gpu_compiler.call(target, compile_evaluations, [recipe()], target)
    calls = [
        kernel.instruction.text
        for kernel in read_program(text).kernels
        if "__cudnn$conv" in kernel.instruction.text
    ]
    assert len(calls) == 20
    fused = [call for call in calls if "__cudnn$convBiasActivationForward" in call]
    assert len(fused) == 20
    # All but the three projections of shortcuts.
    assert sum('"activation_mode":"kRelu"' in call for call in fused) == 17
    assert sum('"side_input_scale":1' in call for call in fused) == 8


def large(step: Step) -> list[Collective]:
    """List the collectives but those of a few numbers, such as the loss."""
    return [c for c in read_program(step.text).collectives if c.bytes > 1000]


def test_gradients_are_summed_once_in_float32(on_eight: dict[str, Step]):
    step = on_eight["data_parallel"]
    found = large(step)
    # Statistics of batch norm are those of a device's own examples: nothing else.
    assert {(c.kind, c.dtype, len(c.group)) for c in found} == {
        ("all-reduce", "f32", 8)
    }
    # And the loss and the accuracy.
    assert 0 <= sum(c.bytes for c in found) - 4 * step.num_params < 100


def test_gradients_are_summed_in_bfloat16_on_request(on_eight: dict[str, Step]):
    step = on_eight["bfloat16"]
    found = large(step)
    assert {(c.kind, len(c.group)) for c in found} == {("all-reduce", 8)}
    # Those of scales and biases are sums in float32 from the start.
    norms = sum(c.bytes for c in found if c.dtype == "f32") // 4
    assert norms < 0.002 * step.num_params
    halves = sum(c.bytes for c in found if c.dtype == "bf16")
    # The loss and the accuracy are among those of float32.
    assert 0 <= norms - (step.num_params - halves // 2) <= 2


def test_fsdp_gathers_in_the_compute_dtype_and_scatters_sums(
    on_eight: dict[str, Step],
):
    step = on_eight["fsdp"]
    found = large(step)
    bytes_of = {
        kind: sum(c.bytes for c in found if c.kind == kind)
        for kind in ("all-gather", "reduce-scatter")
    }
    gathered = {c.dtype for c in found if c.kind == "all-gather"}
    assert gathered == {"bf16"}
    assert bytes_of["all-gather"] <= 1.005 * 2 * step.num_params
    assert {c.dtype for c in found if c.kind == "reduce-scatter"} == {"f32"}
    assert 0.99 < bytes_of["reduce-scatter"] / (4 * step.num_params) <= 1


@pytest.mark.parametrize("name", EIGHT)
def test_collectives_run_beside_computation(on_eight: dict[str, Step], name: str):
    found = read_program(on_eight[name].text).collectives
    hidden = sum(c.bytes for c in found if c.overlapped)
    assert hidden >= 0.95 * sum(c.bytes for c in found)


def test_pruning_ranks_weights_in_steps_where_it_is_due_and_gathers_none(
    on_eight: dict[str, Step],
):
    """Devices that share the state exchange counts beside what they do without."""
    pruned = dataclasses.replace(EIGHT["fsdp"], prune=PruneConfig(sparsity=0.9))
    before, (after,) = on_eight["fsdp"], compiled("h100x8", pruned)
    assert after.donated_bytes == after.state_bytes > before.state_bytes
    programs = [read_program(step.text) for step in (before, after)]
    entry = programs[1].computations[programs[1].entry]
    # All loops of a step are in one branch of the conditional.
    assert [x.operation for x in entry.values()].count("conditional") == 1
    assert "while" not in {x.operation for x in entry.values()}
    large = [
        sorted(x.kind for x in found.collectives if x.bytes > 1024)
        for found in programs
    ]
    assert large[0] == large[1]
    counts = len(programs[1].collectives) - len(programs[0].collectives)
    assert 0 < counts <= 6

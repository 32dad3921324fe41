"""How much of what the device can do a training step uses.

    python benchmarks/roofline.py [--case resnet50] [--precisions bf16 tf32]

In turn: a large matrix product in the dtype of the step's products, a pass over an
array that no cache holds, and steps. Two rows for each precision:

- `roofline`: the least time that the measured peaks allow over the time of a step. The
  least time is that of `jaxtrain.plugins.plan.bounds`, kernel by kernel, nothing kept
  in caches; where the FLOPs alone take longer, theirs. On a CPU caches may beat it.
- `flops`: FLOP/s of the step over those of the matrix product: the model FLOP
  utilisation, of the measured peak. The FLOPs are those of `plan`.

Where the data sheet of the device is known, two more hold the measured peaks to it.
`least_bytes` of a row are the state, read and written, and the batch, `hbm_bytes` what
the kernels read and write, `bandwidth` the measured bytes a second. --tiny measures a
model so small that the figures say nothing.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from cases import CASES, default_case, make_config
from pairs import Seconds, relate, take_turns, tell_each, timed

from jaxtrain.config import Config
from jaxtrain.parallel import devices
from jaxtrain.parallel.gpus import GPUS, Gpu, gpu_name
from jaxtrain.plugins.plan.bounds import bound
from jaxtrain.plugins.plan.facts import Facts, compile_facts
from jaxtrain.plugins.plan.measure import compile_step, create_inputs
from jaxtrain.plugins.plan.targets import HERE, Target
from jaxtrain.trainer.setup import Setup, build_setup
from jaxtrain.training.precision import Policy

PRECISIONS = {"gpu": ("bf16", "tf32"), "cpu": ("fp32", "bf16")}


@dataclass(frozen=True)
class Sizes:
    """Sizes of what is timed.

    Attributes:
      matrix: Rows and columns of the factors.
      copied: Bytes of the array that is copied.
      calls: Calls in a row, which are waited for once.
      rounds: Turns that count.
    """

    matrix: int
    copied: int
    calls: int
    rounds: int


SIZES = {
    "gpu": Sizes(matrix=8192, copied=2**30, calls=10, rounds=9),
    "cpu": Sizes(matrix=2048, copied=2**28, calls=1, rounds=7),
    "tiny": Sizes(matrix=128, copied=2**20, calls=1, rounds=3),
}


def make_products(
    policy: Policy, size: int, used: Sequence[Any]
) -> tuple[Callable[[], Any], int]:
    """Return a product of square matrices on each device, and the FLOPs of one."""
    values = jax.random.normal(jax.random.key(0), (size, size), policy.compute_dtype)
    there = [jax.device_put(values, device) for device in used]
    multiply = jax.jit(jnp.matmul)

    def call() -> Any:
        with jax.default_matmul_precision(policy.products):
            return [multiply(x, x) for x in there]

    return call, 2 * size**3


def make_copy(num_bytes: int, used: Sequence[Any]) -> tuple[Callable[[], Any], int]:
    """Return a pass over an array on each device; and bytes read and written."""
    values = jnp.ones((num_bytes // 4,), jnp.float32)
    there = [jax.device_put(values, device) for device in used]
    add = jax.jit(lambda x: x + 1)
    return lambda: [add(x) for x in there], 2 * num_bytes


def make_step(setup: Setup) -> Callable[[], Any]:
    """Return a function that takes the next training step, on noise."""
    program = compile_step(setup)
    state, *inputs = create_inputs(setup)
    box = [state]

    def call() -> Any:
        box[0] = program(box[0], *inputs)[0]
        return box[0]

    return call


def least_seconds(facts: Facts, flops_a_second: float, bandwidth: float) -> float:
    """Return the least time of a step on a device with these peaks."""
    device = Gpu(
        device_kind=facts.device_kind,
        description="",
        memory=0,
        hbm_bandwidth=bandwidth,
        peaks=dict.fromkeys((facts.products, "float32"), flops_a_second),
        links="",
        link_bandwidth=bandwidth,
        network_bandwidth=bandwidth,
    )
    by_kernels = bound(facts, device, facts.num_devices).step_seconds
    return max(by_kernels, facts.flops / flops_a_second)


def in_a_row(call: Callable[[], Any], num: int) -> Callable[[], Seconds]:
    """Return a function that times calls in a row, waited for once: seconds of one."""

    def calls() -> None:
        result = None
        for _ in range(num):
            result = call()
        jax.block_until_ready(result)

    def run() -> Seconds:
        wall, cpu = timed(calls)
        return wall / num, cpu / num

    return run


def measure(config: Config, sizes: Sizes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure peaks and steps in turn; yield the rows."""
    (facts,) = compile_facts([config], Target(name=HERE, num_devices=None))
    assert isinstance(facts, Facts), facts
    setup = build_setup(config)
    used = list(setup.mesh.devices.flat)
    multiply, product_flops = make_products(setup.policy, sizes.matrix, used)
    copy, copied_bytes = make_copy(sizes.copied, used)
    runs = [in_a_row(c, sizes.calls) for c in (multiply, copy, make_step(setup))]
    for run in runs:
        run()  # The first compiles.
    times = take_turns(runs, sizes.rounds)
    products, copies, steps = ([wall for wall, _ in each] for each in times)
    flops = [product_flops / seconds for seconds in products]
    bandwidth = [copied_bytes / seconds for seconds in copies]
    least = [least_seconds(facts, *p) for p in zip(flops, bandwidth, strict=True)]
    counts = {
        "flops": facts.flops,
        "hbm_bytes": facts.hbm_bytes,
        "least_bytes": 2 * facts.state_bytes + facts.input_bytes,
        "bandwidth": statistics.median(bandwidth),
    }
    unit, tera = f"TFLOP/s of {facts.products}", [1e-12 * value for value in flops]
    reached = [1e-12 * facts.flops / seconds for seconds in steps]
    yield "roofline", relate(steps, least, "s a step") | counts
    yield "flops", relate(reached, tera, unit, more_is_better=True) | counts
    known = gpu_name(facts.device_kind)
    if known is not None:
        gpu = GPUS[known]
        sheet = 1e-12 * gpu.peaks.get(facts.products, gpu.peaks["float32"])
        yield "peak flops", against(tera, sheet, unit)
        giga = [1e-9 * value for value in bandwidth]
        yield "peak bandwidth", against(giga, 1e-9 * gpu.hbm_bandwidth, "GB/s")


def against(measured: list[float], sheet: float, unit: str) -> dict[str, Any]:
    """Hold a measured peak to that of the data sheet."""
    return relate(measured, [sheet] * len(measured), unit, more_is_better=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--precisions", nargs="+")
    parser.add_argument("--tiny", action="store_true", help="only try the script")
    arguments = parser.parse_args()
    devices.start("auto")
    backend = jax.default_backend()
    sizes = SIZES["tiny" if arguments.tiny else backend]
    case = arguments.case or default_case(backend == "gpu", arguments.tiny)
    precisions = arguments.precisions or PRECISIONS[backend]
    rows = (
        (f"{case}, {precision}, {question}", found)
        for precision in precisions
        for question, found in measure(make_config(case, precision), sizes)
    )
    tell_each("roofline", rows)


if __name__ == "__main__":
    main()

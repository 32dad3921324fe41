"""Kernels, FLOPs, memory traffic and collectives in a program's optimized HLO text.

The text is `jax.stages.Compiled.as_text()`, the scheduled program of one device. Its
instructions are in the order of kernel launches on a GPU.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from jaxtrain.plugins.plan.collectives import (
    KINDS,
    Collective,
    array_bytes,
    arrays,
    first_group,
    numbers,
)

# Operations that launch no kernel, as they only alias memory or order operations.
_NO_KERNELS = {
    *("parameter", "tuple", "get-tuple-element", "bitcast", "constant", "after-all"),
    *("opt-barrier", "partition-id", "replica-id"),
}
_LINE = re.compile(r"\s*(?:ROOT )?%(\S+) = (.*?) ([a-z][\w\-]*)\((.*)$")
_COMMENT = re.compile(r"/\*.*?\*/")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
# Start of an instruction's attributes, which follow the operands.
_END = re.compile(r"\), [\w\-]+=")


@dataclass(frozen=True)
class Instruction:
    """One HLO instruction, a line of the text.

    Attributes:
      name: Name without the leading %.
      type: Type of the result, in HLO syntax.
      operation: Operation, such as fusion, custom-call, all-reduce-start.
      operands: Names of the operands.
      text: The full line.
    """

    name: str
    type: str
    operation: str
    operands: tuple[str, ...]
    text: str

    @property
    def starts_kernel(self) -> bool:
        return not (self.operation in _NO_KERNELS or self.operation.endswith("-done"))

    def attribute(self, name: str) -> str:
        """Return the value of an HLO attribute, without % and quotes; "" if absent."""
        match = re.search(rf'\b{name}="?%?([\w.\-$>]+)', self.text)
        return match[1] if match else ""


@dataclass(frozen=True)
class Kernel:
    """Memory traffic and FLOPs of a kernel.

    Attributes:
      instruction: Instruction that launches the kernel.
      bytes: Bytes of operands and results per launch.
      flops: FLOPs of convolutions and matrix products per launch.
      runs: Number of launches, including loop iterations.
    """

    instruction: Instruction
    bytes: int
    flops: int
    runs: int


@dataclass(frozen=True, eq=False)
class HloProgram:
    """Parsed HLO of a program.

    Attributes:
      computations: Name of a computation -> name of an instruction -> instruction.
      entry: Name of the entry computation.
      num_devices: Number of devices that run the program.
    """

    computations: Mapping[str, Mapping[str, Instruction]]
    entry: str
    num_devices: int

    @cached_property
    def kernels(self) -> list[Kernel]:
        """Kernels in the order of launches; `Kernel.runs` includes loop iterations."""
        return list(self._kernels(self.entry, 1))

    @property
    def num_kernels(self) -> int:
        return sum(kernel.runs for kernel in self.kernels)

    @property
    def hbm_bytes(self) -> int:
        """Bytes read and written by the kernels, each operand and result once.

        Cache hits between kernels are ignored.
        """
        return sum(kernel.bytes * kernel.runs for kernel in self.kernels)

    @property
    def flops(self) -> int:
        """FLOPs of convolutions and matrix products; a multiply-add counts as two."""
        return sum(kernel.flops * kernel.runs for kernel in self.kernels)

    @cached_property
    def collectives(self) -> list[Collective]:
        """Collectives, in the order of the text.

        A collective in a loop body, or in a computation called several times, counts
        once. Collectives over a single device are omitted.
        """
        every = self.computations.values()
        lines = (line for found in every for line in found.values())
        started = {x.attribute("calls") for x in lines if x.operation == "async-start"}
        return [
            collective
            for name, found in self.computations.items()
            if name not in started  # Else counted at its async-start.
            for collective in self._collectives(list(found.values()))
        ]

    def _collectives(self, lines: list[Instruction]) -> Iterator[Collective]:
        ends = {
            line.operands[0]: place
            for place, line in enumerate(lines)
            if line.operation.endswith("-done") and line.operands
        }
        for place, line in enumerate(lines):
            inner = self._exchange(line)
            if inner is None:
                continue
            found = self._collective(inner)
            meanwhile = lines[place + 1 : ends.get(line.name, place)]
            if len(found.group) > 1:
                yield replace(found, overlapped=any(map(self._computes, meanwhile)))

    def _collective(self, line: Instruction) -> Collective:
        kind, num = line.operation.removesuffix("-start"), len(line.operands)
        is_start, payload = kind != line.operation, arrays(line.type)
        # The type of an all-reduce-start is the type of its result. Other start
        # operations have the type (operands, results, ...).
        if is_start and kind != "all-reduce":
            payload = payload[num : 2 * num] if kind == "all-gather" else payload[:num]
        group = first_group(kind, line.text, self.num_devices)
        num_bytes = array_bytes(payload)
        if kind == "reduce-scatter" and not is_start:
            num_bytes *= len(group)  # The result is a shard of the operand.
        dtypes = dict.fromkeys(dtype for dtype, _ in payload)
        return Collective(kind, "+".join(dtypes), num_bytes, group)

    def _exchange(self, line: Instruction) -> Instruction | None:
        """Return the collective that an instruction runs or starts, or None."""
        if line.operation == "async-start":
            called = self.computations.get(line.attribute("calls"), {})
            return next((x for x in called.values() if x.operation in KINDS), None)
        return line if line.operation.removesuffix("-start") in KINDS else None

    def _computes(self, line: Instruction) -> bool:
        return line.starts_kernel and self._exchange(line) is None

    def _kernels(self, name: str, runs: int) -> Iterator[Kernel]:
        lines = self.computations[name]
        for line in lines.values():
            if line.operation == "while":
                trips = _TRIPS.search(line.text)
                each = runs * int(trips[1]) if trips else runs
                yield from self._kernels(line.attribute("body"), each)
            elif line.operation == "call":
                yield from self._kernels(line.attribute("to_apply"), runs)
            elif line.operation == "conditional":
                # Only one branch runs: count the branch with the most kernels.
                branches = _branches(line)
                each = [list(self._kernels(branch, runs)) for branch in branches]
                yield from max(each, key=len, default=[])
            elif line.starts_kernel:
                types = [lines[o].type for o in line.operands if o in lines]
                num_bytes = array_bytes(arrays(" ".join([line.type, *types])))
                yield Kernel(line, num_bytes, self._flops(line, lines, types), runs)

    def _flops(
        self, line: Instruction, lines: Mapping[str, Instruction], operands: list[str]
    ) -> int:
        if line.operation == "custom-call":
            target = line.attribute("custom_call_target")
            if target.startswith("__cudnn$conv"):
                return _conv_flops(line, target, operands)
            if "gemm" in target or "matmul" in target:
                return _gemm_flops(line, operands)
        if line.operation in ("fusion", "async-start"):
            called = self.computations.get(line.attribute("calls"), {})
            return sum(_product_flops(x, called) for x in called.values())
        return _product_flops(line, lines)


def read_program(text: str) -> HloProgram:
    """Parse the text of an optimized HLO module."""
    computations: dict[str, dict[str, Instruction]] = {}
    current: dict[str, Instruction] = {}
    entry, module = "", text.partition("\n")[0]
    for raw in text.splitlines():
        header = re.match(r"(ENTRY )?%(\S+) .*\{$", raw)
        if header:
            current = computations.setdefault(header[2], {})
            entry = header[2] if header[1] else entry
            continue
        match = _LINE.match(_COMMENT.sub("", raw))
        if match:
            name, kind, operation, rest = match.groups()
            operands = tuple(re.findall(r"%([\w.\-]+)", _END.split(rest)[0]))
            current[name] = Instruction(name, kind, operation, operands, raw)
    counts = re.findall(r"\b(?:num_partitions|replica_count)=(\d+)", module)
    return HloProgram(computations, entry, math.prod(map(int, counts)))


def _branches(line: Instruction) -> list[str]:
    named = re.search(r"branch_computations=\{([^}]*)\}", line.text)
    if named:
        return re.findall(r"%([\w.\-]+)", named[1])
    return [line.attribute("true_computation"), line.attribute("false_computation")]


def _dims(types: str) -> list[int]:
    return next((dims for _, dims in arrays(types)), [])


def _conv_flops(line: Instruction, target: str, operands: list[str]) -> int:
    """Return the FLOPs of a cuDNN convolution call, two per multiply-add."""
    first, second, result = _dims(operands[0]), _dims(operands[1]), _dims(line.type)
    if target.endswith("convBackwardFilter"):
        output, kernel = second, result
    elif target.endswith("convBackwardInput"):
        output, kernel = first, second
    else:
        output, kernel = result, second
    labels = re.search(r"dim_labels=\w+_(\w+)->", line.text)
    channels = kernel[labels[1].index("o")] if labels else 1
    return 2 * math.prod(output) * math.prod(kernel) // channels


def _gemm_flops(line: Instruction, operands: list[str]) -> int:
    contracted = re.search(r'"lhs_contracting_dimensions":\["?(\d+)', line.text)
    depth = _dims(operands[0])[int(contracted[1])] if contracted else 1
    return 2 * math.prod(_dims(line.type)) * depth


def _product_flops(line: Instruction, others: Mapping[str, Instruction]) -> int:
    types = [others[name].type for name in line.operands if name in others]
    if line.operation == "convolution" and len(types) == 2:
        return _plain_conv_flops(line, _dims(types[1]))
    if line.operation != "dot":
        return 0
    dims = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", line.text)
    shape = _dims(types[0]) if types else []
    depth = math.prod(shape[n] for n in numbers(dims[1])) if dims else 1
    return 2 * math.prod(_dims(line.type)) * depth


def _plain_conv_flops(line: Instruction, kernel: Sequence[int]) -> int:
    """Return the FLOPs of a `convolution` instruction, two per multiply-add.

    Multiply-adds with the zeros of a dilated input are excluded, and multiply-adds with
    padding are included.
    """
    labels = re.search(r"dim_labels=\w+_(\w+)->", line.text)
    channels = kernel[labels[1].index("o")] if labels else 1
    dilation = re.search(r"lhs_dilate=([\dx]+)", line.text)
    zeros = math.prod(map(int, dilation[1].split("x"))) if dilation else 1
    return 2 * math.prod(_dims(line.type)) * math.prod(kernel) // channels // zeros

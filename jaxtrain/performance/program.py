"""What a compiled program does, counted in the text of its optimized HLO.

The text is `jax.stages.Compiled.as_text()`, the program of one device, scheduled: its
lines stand in the order in which a GPU starts them. Nothing is run for it.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from jaxtrain.performance.collectives import KINDS, array_bytes

# What starts no kernel: it names memory, or waits.
_NO_KERNELS = {
    "parameter",
    "tuple",
    "get-tuple-element",
    "bitcast",
    "constant",
    "after-all",
    "opt-barrier",
    "partition-id",
    "replica-id",
}
_LINE = re.compile(r"\s*(?:ROOT )?%(\S+) = (.*?) ([a-z][\w\-]*)\((.*)$")
_COMMENT = re.compile(r"/\*.*?\*/")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_DIMS = re.compile(r"\[([\d,]*)\]")


@dataclass(frozen=True)
class Instruction:
    """A line of a computation.

    Attributes:
      name: without its leading %.
      type: of its result, as HLO writes it.
      operation: such as fusion, custom-call, all-reduce-start.
      operands: their names.
      text: the whole line.
    """

    name: str
    type: str
    operation: str
    operands: tuple[str, ...]
    text: str

    def attribute(self, name: str) -> str:
        """Return the word after `name=`, without % and quotes; "" without it."""
        match = re.search(rf'\b{name}="?%?([\w.\-$>]+)', self.text)
        return match[1] if match else ""


@dataclass(frozen=True)
class Kernel:
    """What one launch does; `runs` is how often, in loops."""

    instruction: Instruction
    bytes: int
    flops: int
    runs: int


@dataclass(frozen=True, eq=False)
class HloProgram:
    """The computations of a program by name, and that which is entered first."""

    computations: Mapping[str, Mapping[str, Instruction]]
    entry: str
    text: str = field(repr=False)

    @cached_property
    def kernels(self) -> list[Kernel]:
        """All that a step starts: loops as often as they run."""
        return list(self._kernels(self.entry, 1))

    @property
    def num_kernels(self) -> int:
        return sum(kernel.runs for kernel in self.kernels)

    @property
    def hbm_bytes(self) -> int:
        """Bytes that the kernels read and write, each operand and result once.

        What a cache keeps from one kernel to the next is counted as if it did not.
        """
        return sum(kernel.bytes * kernel.runs for kernel in self.kernels)

    @property
    def flops(self) -> int:
        """Those of convolutions and matrix products; a product and its sum are two."""
        return sum(kernel.flops * kernel.runs for kernel in self.kernels)

    def overlapped(self) -> dict[str, float]:
        """Return of each kind of collectives the part that computation may hide.

        That is the part of its bytes for which a kernel stands between the start and
        the end. A kind that does not occur is left out.
        """
        total: dict[str, int] = dict.fromkeys(KINDS, 0)
        hidden = dict(total)
        for name, lines in self.computations.items():
            if name in self._started:
                continue  # It counts where it is started.
            for kind, num_bytes, between in self._waits(list(lines.values())):
                total[kind] += num_bytes
                hidden[kind] += num_bytes if between else 0
        return {kind: hidden[kind] / total[kind] for kind in KINDS if total[kind]}

    @cached_property
    def _started(self) -> set[str]:
        """Names of the computations that are a collective's own."""
        lines = (x for found in self.computations.values() for x in found.values())
        return {x.attribute("calls") for x in lines if x.operation == "async-start"}

    def _waits(self, lines: list[Instruction]) -> Iterator[tuple[str, int, int]]:
        """Yield kind, bytes and the kernels meanwhile of each collective."""
        places = {line.name: place for place, line in enumerate(lines)}
        ends = {
            line.operands[0]: place
            for place, line in enumerate(lines)
            if line.operation.endswith("-done") and line.operands
        }
        for place, line in enumerate(lines):
            kind = self.collective_kind(line)
            if kind is None:
                continue
            end = ends.get(line.name, place)
            between = [x for x in lines[place + 1 : end] if self._computes(x)]
            operands = (lines[places[o]].type for o in line.operands if o in places)
            yield kind, sum(map(array_bytes, operands)), len(between)

    def collective_kind(self, line: Instruction) -> str | None:
        """Return the kind of collective that a line starts; None: it starts none."""
        operation = line.operation
        if operation == "async-start":
            called = self.computations.get(line.attribute("calls"), {})
            return next(
                (x.operation for x in called.values() if x.operation in KINDS), None
            )
        operation = operation.removesuffix("-start")
        return operation if operation in KINDS else None

    def _computes(self, line: Instruction) -> bool:
        if self.collective_kind(line) is not None:
            return False
        return line.operation not in _NO_KERNELS and not line.operation.endswith(
            "-done"
        )

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
                # The longest branch: one of them runs.
                branches = _branches(line)
                each = [list(self._kernels(branch, runs)) for branch in branches]
                yield from max(each, key=len, default=[])
            elif line.operation not in _NO_KERNELS and not line.operation.endswith(
                "-done"
            ):
                types = [lines[o].type for o in line.operands if o in lines]
                num_bytes = sum(map(array_bytes, [line.type, *types]))
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
            return sum(_dot_flops(x, called) for x in called.values())
        return _dot_flops(line, lines)


def read_program(text: str) -> HloProgram:
    """Read the text of an optimized HLO module."""
    computations: dict[str, dict[str, Instruction]] = {}
    current: dict[str, Instruction] = {}
    entry = ""
    for raw in text.splitlines():
        header = re.match(r"(ENTRY )?%(\S+) \(.*\{$", raw)
        if header:
            current = computations.setdefault(header[2], {})
            entry = header[2] if header[1] else entry
            continue
        match = _LINE.match(_COMMENT.sub("", raw))
        if match:
            name, kind, operation, rest = match.groups()
            operands = tuple(re.findall(r"%([\w.\-]+)", rest[: _end(rest)]))
            current[name] = Instruction(name, kind, operation, operands, raw)
    return HloProgram(computations, entry, text)


def _end(rest: str) -> int:
    """Return where the brackets close that are open at the start."""
    depth = 1
    for place, char in enumerate(rest):
        depth += (char in "({[") - (char in ")}]")
        if depth == 0:
            return place
    return len(rest)


def _branches(line: Instruction) -> list[str]:
    named = re.search(r"branch_computations=\{([^}]*)\}", line.text)
    if named:
        return re.findall(r"%([\w.\-]+)", named[1])
    return [line.attribute("true_computation"), line.attribute("false_computation")]


def _dims(array: str) -> list[int]:
    match = _DIMS.search(array)
    return [int(n) for n in match[1].split(",") if n] if match else []


def _conv_flops(line: Instruction, target: str, operands: list[str]) -> int:
    """Return 2 x outputs x the products of one, whichever of the arrays is computed."""
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


def _dot_flops(line: Instruction, others: Mapping[str, Instruction]) -> int:
    if line.operation != "dot":
        return 0
    left = others.get(line.operands[0])
    dims = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", line.text)
    shape = _dims(left.type) if left else []
    depth = math.prod(shape[int(n)] for n in dims[1].split(",") if n) if dims else 1
    return 2 * math.prod(_dims(line.type)) * depth

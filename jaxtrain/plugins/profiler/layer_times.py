"""Time per layer, from a trace and the HLO text of the compiled programs."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from jaxtrain import scopes
from jaxtrain.plugins.plan.collectives import KINDS
from jaxtrain.plugins.plan.program import HloProgram, Instruction, read_program
from jaxtrain.plugins.profiler.device_trace import DeviceOp, Span, divide_time
from jaxtrain.plugins.profiler.step_profile import LayerTime, StepProfile

Direction = Literal["forward", "backward"] | None

OTHER, OTHER_PROGRAMS, COLLECTIVES = "other", "other programs", "collectives"
# Instructions that only call other instructions; the called instructions are timed.
_CONTROL = {"while", "conditional", "call"}
_PRODUCTS = {"convolution", "dot"}
# Instructions that copy or rearrange their operand.
_UNCHANGED = {"bitcast", "copy", "copy-done", "copy-start", "parameter", "transpose"}


class LayerPass(NamedTuple):
    """Forward or backward pass of a layer, or another part of a step.

    Attributes:
      layer: Path of the layer, or name of the part.
      direction: Forward or backward pass; None for parts such as the optimizer.
    """

    layer: str
    direction: Direction


class Work(NamedTuple):
    """FLOPs and bytes of instructions."""

    flops: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: "Work") -> "Work":  # type: ignore[override]
        return Work(self.flops + other.flops, self.bytes + other.bytes)


class StepProgram:
    """HLO of the compiled training step, to assign its instructions to layers.

    Args:
      text: HLO text of the step.

    Attributes:
      module: Name of the program in traces.
    """

    def __init__(self, text: str):
        self.module = text.partition(",")[0].removeprefix("HloModule ").strip()
        self._program: HloProgram = read_program(text)
        self._instructions: dict[str, Instruction] = {
            name: line
            for lines in self._program.computations.values()
            for name, line in lines.items()
        }
        self._users: defaultdict[str, list[Instruction]] = defaultdict(list)
        for line in self._instructions.values():
            for name in line.operands:
                self._users[name].append(line)

    def num_known(self, seen: Iterable[str]) -> int:
        """Number of names in `seen` that are instructions of the program."""
        return len(self._instructions.keys() & seen)

    def runs_others(self, name: str) -> bool:
        """Whether an instruction only calls other instructions, as loops do."""
        line = self._instructions.get(name)
        return line is not None and line.operation in _CONTROL

    def row(self, name: str) -> LayerPass:
        """Layer and direction of an instruction, given its name in the trace."""
        line = self._instructions.get(name)
        if line is None:
            return LayerPass(OTHER, None)
        if line.operation.removesuffix("-start").removesuffix("-done") in KINDS:
            return LayerPass(COLLECTIVES, None)
        scope = self._scope(line)
        if scope is None:
            return LayerPass(OTHER, None)
        if not scope.is_layer and scope.name != scopes.LOSS:
            return LayerPass(scope.name, None)
        return LayerPass(scope.name, "backward" if scope.backward else "forward")

    def work(self, seen: Counter[str]) -> dict[LayerPass, Work]:
        """Sum the FLOPs and bytes of the executed instructions by layer and direction.

        Args:
          seen: Instruction -> number of trace events: one per execution, or several
            if a GPU instruction starts several kernels.
        """
        kernels = [k for k in self._program.kernels if seen[k.instruction.name]]
        runs = [seen[k.instruction.name] / k.runs for k in kernels]
        num_runs = statistics.median(runs) if runs else 0
        found: defaultdict[LayerPass, Work] = defaultdict(Work)
        for kernel in kernels:
            row, times = self.row(kernel.instruction.name), num_runs * kernel.runs
            found[row] += Work(kernel.flops * times, kernel.bytes * times)
        return found

    def _scope(self, line: Instruction) -> scopes.Scope | None:
        """Find the layer of an instruction.

        An instruction that the compiler adds, such as a transpose, has no layer name:
        it belongs to the layer that reads the result, or else to the operand's layer.
        """
        scope = self._own_scope(line)
        if scope or _op_name(line):
            return scope
        return self._scope_of_users(line) or self._scope_of_source(line)

    def _own_scope(self, line: Instruction) -> scopes.Scope | None:
        """Return the layer in the metadata of an instruction, or None.

        In a fusion, the metadata of a convolution or matrix product have precedence.
        """
        inner = list(self._called(line).values())
        products = [x for x in inner if x.operation in _PRODUCTS]
        named = (_named(x) for x in (*products, line, *reversed(inner)))
        return next(filter(None, named), None)

    def _scope_of_users(self, line: Instruction) -> scopes.Scope | None:
        """Find the first layer among the instructions that read the result, or None."""
        waiting, known = [line], {line.name}
        for taken in waiting:
            for user in self._users.get(taken.name, ()):
                if user.operation == "fusion":
                    user = self._parameter(user, user.operands.index(taken.name))
                if scope := _named(user):
                    return scope
                if user.operation in _UNCHANGED and user.name not in known:
                    known.add(user.name)
                    waiting.append(user)
        return None

    def _scope_of_source(self, line: Instruction) -> scopes.Scope | None:
        while line.operands and not _op_name(line):
            source = self._instructions.get(line.operands[0])
            if source is None:
                break
            line = source
            if scope := self._own_scope(line):
                return scope
        return None

    def _called(self, line: Instruction) -> Mapping[str, Instruction]:
        """Instructions inside a fusion, by name; {} for other instructions."""
        return self._program.computations.get(line.attribute("calls"), {})

    def _parameter(self, fusion: Instruction, number: int) -> Instruction:
        """Return the parameter instruction of a fusion's operand `number`."""
        end = f" parameter({number})"
        inner = self._called(fusion).values()
        return next((x for x in inner if end in x.text), fusion)


def _named(line: Instruction) -> scopes.Scope | None:
    return scopes.parse_scope(_op_name(line))


def _op_name(line: Instruction) -> str:
    _, _, rest = line.text.partition('op_name="')
    return rest.partition('"')[0]


def tabulate(
    ops: Sequence[DeviceOp],
    texts: Iterable[str],
    *,
    steps: tuple[int, int],
    device_kind: str,
    trace: str,
) -> StepProfile:
    """Tabulate the time of profiled steps by layer.

    Args:
      ops: Executions of instructions.
      texts: Optimized HLO of the programs of the training step.
      steps: Number of completed steps before and after the trace.
      device_kind: Name of the device in JAX.
      trace: Directory of the trace, relative to the workdir.

    Raises:
      ValueError: No instruction was executed.
    """
    if not ops:
        raise ValueError("the trace has no instruction of a device")
    programs = [StepProgram(text) for text in texts]
    times: defaultdict[LayerPass, float] = defaultdict(float)
    work: defaultdict[LayerPass, Work] = defaultdict(Work)
    rows: dict[tuple[str, str], tuple[LayerPass, int]] = {}
    for name, found in _by(ops, lambda op: op.program).items():
        seen = Counter(op.instruction for op in found)
        program = _program(name, seen, programs)
        for instruction in seen:
            rows[name, instruction] = _row_and_rank(instruction, program)
        for row, done in (program.work(seen) if program else {}).items():
            work[row] += done
    devices = _by(ops, lambda op: op.device)
    for found in devices.values():
        spans = [span for op in found for span in _spans(op, rows)]
        for row, time in divide_time(spans).items():
            times[row] += time
    whole = sum(times.values())
    clock = max(op.done for op in ops) - min(op.start for op in ops)
    num, num_steps = len(devices), steps[1] - steps[0]
    return StepProfile(
        steps=steps,
        device_kind=device_kind,
        num_devices=num,
        milliseconds=1e-6 * clock / num_steps,
        idle_share=1 - whole / (num * clock),
        trace=trace,
        layers=tuple(
            LayerTime(
                layer=row.layer,
                direction=row.direction,
                milliseconds=1e-6 * time / (num * num_steps),
                share=time / whole,
                flops=1e9 * work[row].flops / time or None,
                bytes=1e9 * work[row].bytes / time or None,
            )
            for row, time in sorted(times.items(), key=lambda x: x[1], reverse=True)
        ),
    )


def _by(
    ops: Sequence[DeviceOp], key: Callable[[DeviceOp], str]
) -> dict[str, list[DeviceOp]]:
    found = defaultdict(list)
    for op in ops:
        found[key(op)].append(op)
    return found


def _spans(
    op: DeviceOp, rows: dict[tuple[str, str], tuple[LayerPass, int]]
) -> Iterator[Span]:
    """Yield the span until `end`, then any span on other CPU threads until `done`."""
    row, rank = rows[op.program, op.instruction]
    yield Span(op.start, op.end, rank, row)
    if op.done > op.end:
        # After `end`, the instruction may only be waiting for a busy thread. The higher
        # rank gives priority to other instructions.
        yield Span(op.end, op.done, rank + 1, row)


def _program(
    name: str, seen: Counter[str], programs: Sequence[StepProgram]
) -> StepProgram | None:
    """Find the step program by its name in the trace, or None for other programs.

    If the one-step and the multi-step program have the same name, the program that
    contains more of the instructions in `seen` is chosen.
    """
    fitting = [p for p in programs if p.module == name.partition(" ")[0]]
    return max(fitting, key=lambda p: p.num_known(seen), default=None)


def _row_and_rank(
    instruction: str, program: StepProgram | None
) -> tuple[LayerPass, int]:
    """Return layer and `Span.rank` of an instruction; loops have a higher rank."""
    if program is None:
        return LayerPass(OTHER_PROGRAMS if instruction else OTHER, None), 0
    return program.row(instruction), 2 if program.runs_others(instruction) else 0

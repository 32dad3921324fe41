"""Going back to an earlier checkpoint, at a person's word or after a loss spike.

What came after it is moved aside, never deleted. From there the data of some steps may
be left out: the state is that of the checkpoint, the data are later ones (as PaLM was
trained, Chowdhery et al. 2022, arXiv:2204.02311, section 5.1).
"""

import collections
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from jaxtrain import atomic_file
from jaxtrain.checkpoints.folder import unused
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.errors import BadNumbersError, UserError
from jaxtrain.json_files.run_id import RunId, read_of_run
from jaxtrain.processes import peers
from jaxtrain.records import workdir as workdir_lib
from jaxtrain.run.progress import Progress
from jaxtrain.run.timetable import Timetable

# What to do about a damaged file of skips.
WITHOUT_SKIPS = "restore it from a copy, or move it away to leave no data out"
# Times that loss spikes lead back to one checkpoint, before the run gives up.
MAX_REWINDS = 3


@dataclass(eq=False)
class LossSpike(Exception):
    """A loss spike came up that the run is to go back for.

    Attributes:
      step: Completed steps before the step of the spike.
      position: Position of its batch in the data.
      details: Numbers of the line that tells of it.
    """

    step: int
    position: int
    details: dict[str, Any]


class Rewinds:
    """Moves a run back, and its data ahead; `apply` once the state is restored."""

    def __init__(self, workdir: Path, saved: Checkpoints, timetable: Timetable):
        self._workdir, self._saved, self._timetable = workdir, saved, timetable
        self._times = collections.Counter[int]()
        # Where the data are left out last; None: as the checkpoint says.
        self._position: int | None = None
        self._event: dict[str, Any] | None = None

    def to_step(self, step: int, skip_steps: int) -> None:
        """Go back to a checkpoint, and leave out the data of the next steps.

        Raises:
          UserError: there is no checkpoint of this step.
        """
        steps = self._saved.steps()
        if step not in steps:
            known = ", ".join(map(str, steps)) or "none"
            raise UserError(
                f"--resume-step {step}: no such checkpoint in {self._saved.directory}; "
                f"there is {known}"
            )
        # First, so that a kill in between cannot lose it.
        before = self._skips()
        skips = {s: n for s, n in before.items() if s < step}
        if skip_steps:
            skips[step] = skip_steps
        if skips != before and jax.process_index() == 0:
            named = {str(s): n for s, n in skips.items()}
            path = self._workdir / workdir_lib.SKIPS
            workdir_lib.write_digested(path, self._saved.run.stamp(named))
        self._move_aside(step, steps[-1])
        self._event = {
            "event": "rewound, as asked",
            "from_step": steps[-1],
            "skip_steps": skip_steps,
        }

    def before(self, spike: LossSpike) -> None:
        """Go back to the newest checkpoint before a spike, and leave it out.

        A regular checkpoint if there is one, so that the additional one of a run that
        was interrupted does not change where it leads.

        Raises:
          BadNumbersError: it led back there too often.
        """
        steps = [step for step in self._saved.steps() if step <= spike.step]
        every = self._timetable.save_every_steps
        regular = [step for step in steps if every and step % every == 0]
        target = max(regular or steps, default=0)
        self._times[target] += 1
        if self._times[target] > MAX_REWINDS:
            loss, limit = spike.details["loss"], spike.details["loss_limit"]
            raise BadNumbersError(
                f"step {spike.step + 1}: loss {loss} is a spike (above {limit}), after "
                f"{MAX_REWINDS} others that led back to checkpoint {target} "
                "(train.on_spike = 'rewind'). Go further back with --resume-step and "
                "--skip-steps, or try, in another --workdir or with --fresh, a lower "
                "optimizer.learning_rate or optimizer.clip_norm"
            )
        self._move_aside(target, spike.step + 1)
        self._position = spike.position
        self._event = {
            "event": "rewound for a loss spike",
            "from_step": spike.step + 1,
            **spike.details,
        }

    def apply(self, step: int, progress: Progress) -> dict[str, Any] | None:
        """Move the data of a restored run ahead; return the event to tell of, if any.

        Done once: what it sets is saved with the next checkpoint. Until then a run that
        is started again finds the same spike again, or the file of skips.
        """
        if skipped := self._skips().get(step, 0):
            last = progress.data_position(step) + skipped - 1
            progress.leave_out(step, last)
        if self._position is not None:
            progress.leave_out(step, self._position)
        event, self._event, self._position = self._event, None, None
        return event and {**event, "data_offset": progress.data_offset}

    def _skips(self) -> dict[int, int]:
        path = self._workdir / workdir_lib.SKIPS
        if not path.exists():
            return {}
        run = RunId.read(self._workdir)
        found = read_of_run(path, dict[str, int], run, advice=WITHOUT_SKIPS) or {}
        for step, num in found.items():
            if not step.isdecimal() or num < 0:
                raise UserError(
                    f"{path}: {step}: {num}: expected a step, and a number of steps "
                    f"whose data are left out: {WITHOUT_SKIPS}"
                )
        return {int(step): num for step, num in found.items()}

    def _move_aside(self, step: int, newest: int) -> None:
        """Rename newer checkpoints and the summary; keep a copy of the metrics."""
        if jax.process_index() == 0:
            lines = self._workdir / workdir_lib.METRICS
            if lines.exists():
                with atomic_file.replacing(_aside(lines, newest)) as copy:
                    shutil.copyfile(lines, copy)
            summary = self._workdir / workdir_lib.SUMMARY
            if summary.exists():
                summary.rename(_aside(summary, newest))
        self._saved.put_aside_after(step)
        peers.gather(None)


def _aside(path: Path, step: int) -> Path:
    """Return an unused name, such as `metrics.rewound-30.jsonl`."""
    return unused(path.with_name(f"{path.stem}.rewound-{step}"), path.suffix)

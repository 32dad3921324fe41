"""Trainer: initial state, batches, steps and evaluations of a run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import keys
from jaxtrain.data import loader
from jaxtrain.data.batch import Batch
from jaxtrain.data.batch_specs import train_numbers
from jaxtrain.data.loader import Dataset
from jaxtrain.errors import UserError
from jaxtrain.evaluation.evaluate import ModelView, evaluate
from jaxtrain.evaluation.reducers import TaskMetrics
from jaxtrain.parallel import data_sharding
from jaxtrain.tasks.base import Values, with_chosen
from jaxtrain.trainer.pretrained import first_weights, plan_start
from jaxtrain.trainer.programs import Programs, augmented, make_programs
from jaxtrain.trainer.run_data import RunData, load_data
from jaxtrain.trainer.setup import Setup, build_setup
from jaxtrain.training.schedules import Schedule
from jaxtrain.training.state import TrainState
from jaxtrain.training.transforms.base import Metrics

if TYPE_CHECKING:
    from jaxtrain.config import Config
    from jaxtrain.weights.stored import Transfer


class StepBatch(NamedTuple):
    """Examples of one call of the training step.

    Attributes:
      start: Number of completed steps before the call.
      num_steps: Number of steps of the call.
      arrays: `index` of the examples and, if the split is streamed, `image` and
        `target`; (num_steps, B, ...) each, on the devices.
      data: Arrays of the full training split on the devices; {} if streamed.
    """

    start: int
    num_steps: int
    arrays: Batch
    data: Any

    @property
    def stop(self) -> int:
        """Number of completed steps after the call."""
        return self.start + self.num_steps


class Trainer(Setup):
    """Model, data and compiled programs of a config; immutable.

    The constructor opens and checks the data. Data are loaded, and programs compiled,
    at first use. The methods can be used separately:

        trainer = jaxtrain.Trainer(config)
        state = trainer.init()
        for batch in trainer.batches(start=0, stop=100):
            state, metrics = trainer.step(state, batch)
        trainer.evaluate(state, "validation")
    """

    def __init__(
        self,
        config: Config,
        *,
        schedule: Schedule | None = None,
        workdir: Path | None = None,
        sets_rate: bool = False,
    ):
        """Check a config against its data, the model and the devices.

        Args:
          config: Config of the run.
          schedule: Learning-rate schedule. Defaults to the config's schedule.
          workdir: Workdir of a run to resume; its config has the resolved values.
          sets_rate: Whether callbacks set a factor on the learning rate
            (`Callback.sets_rate`).

        Raises:
          UserError: A name is unknown, or data, model, batch and devices are
            incompatible.
        """
        setup = build_setup(config, schedule, workdir=workdir, sets_rate=sets_rate)
        vars(self).update(vars(setup))

    @cached_property
    def data(self) -> RunData:
        """Data of the run, cached on the devices or streamed."""
        return load_data(self)

    @cached_property
    def programs(self) -> Programs:
        """Jitted functions of the run, compiled at their first calls."""
        return make_programs(self, self.data)

    @cached_property
    def pretrained(self) -> Transfer | None:
        """Pretrained weights matched to the model, or None.

        Raises:
          UserError: Names or shapes of the weights do not match the model.
        """
        return plan_start(self)

    @cached_property
    def root_key(self) -> jax.Array:
        """PRNG key of `config.seed`, the root of all randomness of the run."""
        make = jax.jit(
            keys.root_key,
            static_argnums=0,
            out_shardings=data_sharding.replicated(self.mesh),
        )
        return make(self.config.seed)

    def init(self) -> TrainState:
        """Create the initial state, with sharded arrays."""
        return self.begin()[0]

    def begin(self) -> tuple[TrainState, str | None]:
        """Create the initial state; also return a log line about pretrained weights."""
        weights, told = first_weights(self, self.programs, self.data, self.pretrained)
        return self.programs.begin(weights), told

    def batches(
        self, start: int = 0, stop: int | None = None
    ) -> Generator[StepBatch, None, None]:
        """Yield training batches, which depend only on the seed and the step.

        Args:
          start: Step of the first batch.
          stop: Step after the last batch. Defaults to the length of the run.
        """
        config, timetable = self.config, self.timetable
        train_set, total = self.data.train_set, timetable.total_steps
        stop = total if stop is None else stop
        if stop > total:
            raise UserError(
                f"stop = {stop}: expected at most {total}, the last step of the run"
            )
        read = loader.train_batches(
            config.data, train_set, self.mesh, self.data.order, start, stop
        )
        sizes = timetable.call_sizes(start, config.train.steps_per_call, stop)
        fed = loader.feed(read, sizes, self.mesh, timetable.batch_size)
        try:
            for num_steps, arrays in fed:
                yield StepBatch(start, num_steps, arrays, train_set.on_device)
                start += num_steps
        finally:
            fed.close()
            read.close()

    def put(self, batch: Mapping[str, Any], step: int = 0) -> StepBatch:
        """Put a batch from any source onto the devices, for one step.

        Args:
          batch: `image`, uint8 (B, H, W, C), and `target`, in the format of the data
            source; optionally `index`, (B,), example indices for the random
            augmentation, by default 0, 1, ... Each process passes its shard.
          step: Number of steps before this batch.

        Raises:
          UserError: An array is missing.
        """
        size = self.timetable.batch_size
        rows = data_sharding.local_rows(self.mesh, size)
        arrays = {"index": np.arange(size)[rows], **batch}
        for name in ("image", "target", *train_numbers(self.config.data)):
            if name not in arrays:
                raise UserError(f"the batch has no array {name!r}: add the array")
        arrays = jax.tree.map(lambda x: np.asarray(x)[None], arrays)
        for name in train_numbers(self.config.data):
            arrays[name] = arrays[name].astype(np.int32)
        return StepBatch(step, 1, data_sharding.put_batch(self.mesh, arrays, size), {})

    def prepare(self, batch: StepBatch) -> Batch:
        """Augment and normalize a batch, as the training step does.

        Returns:
          `image`, augmented and normalized, and `target`: (num_steps, B, ...) each.
        """
        at = [phase.start for phase in self.phases if phase.start <= batch.start][-1]
        root, first = self.root_key, np.int32(batch.start)
        return self._preparing[at](batch.data, batch.arrays, root, first)

    @cached_property
    def _preparing(self) -> dict[int, Callable[..., Batch]]:
        mean, std, dtype = self.data.mean, self.data.std, self.policy.compute_dtype

        def of(preprocess: Any) -> Callable[..., Batch]:
            def prepare(data: Any, batches: Batch, root: Any, first: Any) -> Batch:
                num_steps = len(jax.tree.leaves(batches)[0])
                each = [jax.tree.map(itemgetter(i), batches) for i in range(num_steps)]
                found = [
                    preprocess(data, batch, root, first + i)
                    for i, batch in enumerate(each)
                ]
                return jax.tree.map(lambda *x: jnp.stack(x), *found)

            return jax.jit(prepare)

        return {
            phase.start: of(augmented(self, phase, mean, std, dtype))
            for phase in self.phases
        }

    def step(self, state: TrainState, batch: StepBatch) -> tuple[TrainState, Metrics]:
        """Train for `batch.num_steps` steps; the arrays of `state` are donated.

        Returns:
          The new state, and metrics, (num_steps,) each, on the devices.
        """
        train = self.programs.train_at(batch.start)
        method_arrays = self.programs.method_arrays
        return train(state, self.root_key, batch.data, batch.arrays, **method_arrays)

    def evaluate(
        self,
        state: TrainState,
        split: str = "validation",
        *,
        chosen: Mapping[str, Any] | None = None,
        renew: bool = True,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Values | None:
        """Evaluate a state on a split, each example exactly once.

        Args:
          state: State to evaluate; averaged weights take precedence.
          split: `validation` or `test`.
          chosen: Values for metrics, such as thresholds, fitted on the validation
            split. Defaults to the task's values.
          renew: Whether to recompute batch-norm statistics of averaged weights first
            (see `renewed`).
          should_stop: Function called between batches; returns True to cancel.

        Returns:
          `loss`, the metrics of the task, and `num_examples`; None if cancelled.

        Raises:
          UserError: Unknown or missing split.
        """
        if split not in ("validation", "test"):
            raise UserError(f"split = {split!r}: expected validation or test")
        task = self.task if chosen is None else with_chosen(self.task, chosen)
        if renew:
            state = self.renewed(state, int(state.step))
        view = ModelView(
            weights=(state.eval_params, state.eval_model_state),
            mesh=self.mesh,
            program=lambda reducers: self.programs.eval,
        )
        reducers, dataset = [TaskMetrics(task)], self.dataset(split)
        found = evaluate(
            view, dataset, reducers, self.config.data, should_stop=should_stop
        )
        return found[0] if found else None

    def renewed(self, state: TrainState, step: int) -> TrainState:
        """Recompute the batch-norm statistics of averaged weights.

        Args:
          state: State after `step` steps.
          step: Number of completed steps.
        """
        statistics, average = self.programs.statistics, self.average
        if statistics is None or average is None or not average.recomputes(step):
            return state
        return statistics.of(state, step)

    def dataset(self, split: str) -> Dataset:
        """Data set of a split.

        Args:
          split: `train`, `validation` or `test`.

        Raises:
          UserError: Unknown or missing split.
        """
        splits = {
            "train": self.data.train_set,
            "validation": self.data.validation_set,
            "test": self.data.test_set,
        }
        found = splits.get(split)
        if found is None:
            known = ", ".join(name for name, x in splits.items() if x is not None)
            raise UserError(f"split = {split!r}: expected {known}")
        return found

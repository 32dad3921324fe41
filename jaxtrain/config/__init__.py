"""The only schema of a run: frozen dataclasses, validated when they are made.

A file `configs/NAME.py` returns a `Config`; command-line overrides make a new one.
`None` means "not set": the default of the model, optimizer or schedule then holds, and
setting an option that the chosen one does not take is an error.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from jaxtrain.errors import UserError

T = TypeVar("T")

METRICS = ("loss", "accuracy", "top5_accuracy")
Metric = Literal["loss", "accuracy", "top5_accuracy"]

MESH_AXES = ("data", "fsdp", "model", "spatial", "spatial_width")
Preset = Literal["data_parallel", "fsdp", "zero1", "tensor", "spatial", "2d"]

# Of each group one member may be set; an override on the command line replaces the
# member that the config file sets.
ONE_OF = (
    ("train.epochs", "train.steps", "train.examples"),
    ("train.eval_every_epochs", "train.eval_every_steps"),
    ("checkpoint.every_epochs", "checkpoint.every_steps", "checkpoint.every_minutes"),
    (
        "optimizer.warmup_epochs",
        "optimizer.warmup_steps",
        "optimizer.warmup_examples",
    ),
)

# What may differ between a run and its continuation in the same workdir: it changes
# how a run is carried out, watched or ended, not what it computes.
MAY_CHANGE_ON_RESUME = (
    "logging",
    "checkpoint",
    "parallel.preset",
    *(f"parallel.{axis}" for axis in MESH_AXES),
    "parallel.pipeline_stages",
    "parallel.xla_flags",
    "parallel.heartbeat_seconds",
    "parallel.shutdown_seconds",
    "data.data_dir",
    "data.allow_overlap",
    "data.cache",
    "data.eval_batch_size",
    "data.workers",
    "train.epochs",
    "train.steps",
    "train.examples",
    "train.stop_after_steps",
    "train.steps_per_call",
    "train.max_bad_steps",
    "train.step_timeout_seconds",
)

# JAX counts in 32 bits and computes in them; a few counts only Python sees.
MAX_COUNT = 2**31 - 1
MAX_LARGE_COUNT = 2**53
LARGE_COUNTS = ("examples", "warmup_examples", "seed")
MAX_FLOAT = 3.4e38
# A year: clocks and timers of the system take no more than some hundred of them.
MAX_SECONDS = 365 * 24 * 3600


def _is_of_type(value: Any, hint: Any) -> bool:
    """Tell whether a value is of the type of a field; True and False are no numbers."""
    if get_origin(hint) in (Union, UnionType):
        return any(_is_of_type(value, member) for member in get_args(hint))
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if get_origin(hint) is tuple:
        item = get_args(hint)[0]
        return isinstance(value, tuple) and all(_is_of_type(v, item) for v in value)
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint)


def _show_value(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:
        return "a number with more digits than Python writes"


def _show(hint: Any) -> str:
    return getattr(hint, "__name__", str(hint)) if isinstance(hint, type) else str(hint)


class _Section:
    """Checks type and size of every field, then calls `validate`."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            value = getattr(self, name)
            self._check(name, _is_of_type(value, hint), _show(hint))
            largest = MAX_LARGE_COUNT if name in LARGE_COUNTS else MAX_COUNT
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, int):
                    expected = f"a number of at most {largest}"
                    self._check(name, number <= largest, expected)
                elif isinstance(number, float):
                    expected = f"a finite number of at most {MAX_FLOAT:g}"
                    self._check(name, abs(number) <= MAX_FLOAT, expected)
        self.validate()

    def validate(self) -> None:
        """Raise UserError for values out of range."""

    def _check(self, name: str, ok: bool, expected: str) -> None:
        if not ok:
            value = _show_value(getattr(self, name))
            raise UserError(f"{name} = {value}: expected {expected}")

    def _positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            self._check(name, value is None or value > 0, "a value above 0")

    def _not_negative(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            self._check(name, value is None or value >= 0, "0 or more")

    def _fraction(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            self._check(name, value is None or 0 <= value < 1, "0 <= value < 1")

    def _seconds(self, *names: str) -> None:
        self._positive(*names)
        for name in names:
            value = getattr(self, name)
            ok = value is None or value <= MAX_SECONDS
            self._check(name, ok, f"at most a year, {MAX_SECONDS} seconds")


@dataclass(frozen=True, kw_only=True)
class AugmentConfig(_Section):
    # Pad by this many pixels on every side, then crop back at a random place.
    crop_padding: int = 0
    # Mirror left and right with probability one half.
    horizontal_flip: bool = False
    # Side in pixels of a square, at a random place, set to the mean colour; 0: none.
    cutout_size: int = 0
    # Random area (8-100 %) and aspect (3/4-4/3), resized to image_size; streamed data
    # only, as the stored images are cut on the host.
    random_resized_crop: bool = False

    def validate(self) -> None:
        self._not_negative("crop_padding", "cutout_size")


@dataclass(frozen=True, kw_only=True)
class DataConfig(_Section):
    # digits, tfds:NAME, or synthetic:HxWxC/CLASSES[/EXAMPLES].
    source: str = "digits"
    # Where TFDS data sets lie; None: $TFDS_DATA_DIR, else ~/tensorflow_datasets.
    data_dir: str | None = None
    # Training split, in TFDS syntax, such as train[:90%] or train+test[:100].
    train_split: str = "train"
    # Validation split; None: the set's own, else a held-out fraction of the training
    # split.
    validation_split: str | None = None
    # Test split, used once, at the end.
    test_split: str = "test"
    # Seeded, stratified fraction of the training split held out for validation when
    # there is no validation split; 0: no validation.
    validation_fraction: float = 0.1
    # Let splits share examples, such as to see that a model can learn a few by heart.
    allow_overlap: bool = False
    # Examples in a global batch: of all devices and processes, of one optimizer step.
    batch_size: int = 128
    # Examples in a global batch of an evaluation; None: as batch_size.
    eval_batch_size: int | None = None
    # Height and width in pixels that images are resized to; None: as stored.
    image_size: int | None = None
    # 1: grey, 3: colour; None: as stored.
    channels: int | None = None
    # Mean of each channel, in 0..1, subtracted; None: computed from the training split.
    mean: tuple[float, ...] | None = None
    # Standard deviation of each channel, in 0..1, divided by; None: computed likewise.
    std: tuple[float, ...] | None = None
    # Random changes of the training images, other ones in every epoch.
    augment: AugmentConfig = AugmentConfig()
    # Keep the images on the device (device), stream them (stream), or decide by size.
    cache: Literal["auto", "device", "stream"] = "auto"
    # Processes that decode streamed images; 0: threads of this process.
    workers: int = 0

    def validate(self) -> None:
        self._positive("batch_size", "eval_batch_size", "image_size")
        self._fraction("validation_fraction")
        self._check("channels", self.channels in (None, 1, 3), "1 or 3")
        self._not_negative("workers")
        if (self.mean is None) != (self.std is None):
            raise UserError("mean and std: give both or neither")
        if self.data_dir is not None and not self.source.startswith("tfds:"):
            raise UserError(
                f"data_dir = {self.data_dir!r} has no effect on {self.source}, only on "
                "tfds: sources"
            )
        in_0_1 = "in 0..1: those of pixel values from 0 to 255, divided by 255"
        self._check("mean", all(0 <= m <= 1 for m in self.mean or ()), in_0_1)
        std = all(0 < s <= 1 for s in self.std or ())
        self._check("std", std, f"values above 0, {in_0_1}")
        if self.augment.random_resized_crop:
            if self.image_size is None:
                raise UserError("augment.random_resized_crop: set data.image_size too")
            if self.cache == "device":
                raise UserError(
                    "augment.random_resized_crop cuts the stored images on the host: "
                    "set data.cache to stream"
                )
        if self.cache == "device" and self.workers:
            raise UserError(
                f"workers = {self.workers} has no effect with cache = 'device': "
                "set data.workers to 0 or data.cache to stream"
            )


@dataclass(frozen=True, kw_only=True)
class ModelConfig(_Section):
    # lenet, convnet, cnn4, resnet18, resnet34, resnet50, resnet101 or resnet152.
    name: str = "convnet"
    # Factor on the number of channels of every layer.
    width: float | None = None
    # Probability of dropping a feature before the last layer.
    dropout: float | None = None
    # First layers of a ResNet: imagenet (7x7 stride 2, max pool) or cifar (3x3).
    stem: Literal["imagenet", "cifar"] | None = None

    def validate(self) -> None:
        self._positive("width")
        self._fraction("dropout")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(_Section):
    # sgd, adam, adamw, lamb, lars, lion, rmsprop, adagrad, muon or lbfgs.
    name: str = "sgd"
    # Peak learning rate, for the global batch; lbfgs searches its own.
    learning_rate: float | None = None
    # Weight decay; biases and norm parameters are left out.
    weight_decay: float = 0.0
    # Largest global norm of the gradients; None: not clipped.
    clip_norm: float | None = None
    # Momentum of sgd, lars, rmsprop and muon.
    momentum: float | None = None
    # Nesterov momentum, of the same, and of adam and adamw.
    nesterov: bool | None = None
    # Decay of the first moment (adam, adamw, lamb, lion).
    b1: float | None = None
    # Decay of the second moment (adam, adamw, lamb, lion, rmsprop).
    b2: float | None = None
    # Added to the denominator (adam, adamw, lamb, rmsprop, adagrad).
    eps: float | None = None
    # constant, cosine, linear, step, exponential or one_cycle.
    schedule: str = "constant"
    # Warm-up from 0 (linear), in epochs.
    warmup_epochs: float | None = None
    # Warm-up in steps.
    warmup_steps: int | None = None
    # Warm-up in examples.
    warmup_examples: int | None = None
    # Last learning rate as a fraction of the peak (cosine, linear, exponential,
    # one_cycle).
    end_factor: float | None = None
    # Where the step schedule drops, as fractions of the whole run.
    milestones: tuple[float, ...] | None = None
    # Factor of each drop of the step schedule.
    step_factor: float | None = None

    def validate(self) -> None:
        self._positive("learning_rate", "clip_norm", "eps", "step_factor")
        factor = self.step_factor
        self._check(
            "step_factor", factor is None or factor <= 1, "a value of at most 1"
        )
        self._not_negative("weight_decay", "end_factor")
        self._not_negative("warmup_epochs", "warmup_steps", "warmup_examples")
        self._fraction("momentum", "b1", "b2")
        milestones = self.milestones or ()
        self._check(
            "milestones",
            all(0 < m < 1 for m in milestones)
            and list(milestones) == sorted(milestones),
            "rising fractions of the run, between 0 and 1",
        )


@dataclass(frozen=True, kw_only=True)
class ParallelConfig(_Section):
    # What the devices share: data_parallel (the batch), fsdp (the batch and the whole
    # state), zero1 (the batch and the optimizer's state), tensor (channels), spatial
    # (the rows of the images) or 2d (fsdp over groups of 2 that share channels).
    preset: Preset = "data_parallel"
    # Devices that share a batch and hold a whole copy of the state each. This and the
    # next four are the mesh: -1: all that the others leave; None: as the preset says.
    data: int | None = None
    # Devices that share a batch and the state.
    fsdp: int | None = None
    # Devices that share the channels of convolutions and the classes.
    model: int | None = None
    # Devices that share the rows of an image.
    spatial: int | None = None
    # Devices that share the columns of an image.
    spatial_width: int | None = None
    # Stages that hold the layers in turn, each on its part of the devices; the
    # micro-batches that pass through them are train.accumulate_steps.
    pipeline_stages: int = 1
    # Examples whose batch-norm statistics are computed together, or global: all of a
    # (micro-)batch, for which the devices exchange them in every layer.
    batch_norm: Literal["global"] | int = "global"
    # Named set of XLA flags for several GPUs: overlap hides collectives behind
    # computation. Without effect on CPU.
    xla_flags: Literal["default", "overlap"] = "default"
    # Of several processes: seconds without a sign of life of one, after which the
    # others end with exit code 75 (start again). One that was killed they see at once.
    heartbeat_seconds: float = 30.0
    # Seconds that a process waits at the end of the run for the others to come there.
    shutdown_seconds: float = 300.0

    def validate(self) -> None:
        for name in MESH_AXES:
            size = getattr(self, name)
            ok = size is None or size == -1 or size > 0
            self._check(name, ok, "-1 or above 0")
        rest = [name for name in MESH_AXES if getattr(self, name) == -1]
        if len(rest) > 1:
            raise UserError(
                f"{' and '.join(f'parallel.{name} = -1' for name in rest)}: one axis "
                "may take the rest of the devices"
            )
        self._positive("pipeline_stages")
        self._seconds("heartbeat_seconds", "shutdown_seconds")
        self._check(
            "batch_norm",
            self.batch_norm == "global" or self.batch_norm > 0,
            "global or a number of examples above 0",
        )


@dataclass(frozen=True, kw_only=True)
class TrainConfig(_Section):
    # Length in epochs; one of epochs, steps and examples.
    epochs: float | None = None
    # Length in optimizer steps.
    steps: int | None = None
    # Length in training examples.
    examples: int | None = None
    # Stop once this many steps are done, as if interrupted; the schedule is unchanged.
    # (With steps_per_call, at the end of the call.)
    stop_after_steps: int | None = None
    # Steps compiled into one call: fewer dispatches, for small models on a GPU.
    steps_per_call: int = 1
    # Micro-batches whose gradients are averaged into one step.
    accumulate_steps: int = 1
    # Non-finite steps in a row after which the run stops.
    max_bad_steps: int = 10
    # Seconds without a finished step, or batch of an evaluation, after which the run
    # ends with exit code 75 (start again); None: it waits for ever.
    step_timeout_seconds: float | None = None
    # Standard deviations above the mean of the last losses that make a loss a spike;
    # None: spikes are not looked for.
    spike_sigma: float | None = None
    # Steps over which that mean and deviation are taken.
    spike_window: int = 100
    # A spike is told (warn), changes nothing but the counts (skip), or leads back to
    # the checkpoint before it, from which the data up to it are left out (rewind).
    on_spike: Literal["warn", "skip", "rewind"] = "warn"
    # Probability moved from the true class to all classes evenly.
    label_smoothing: float = 0.0
    # Decay of the moving average of the weights, which is then what is evaluated.
    ema_decay: float | None = None
    # Epochs between evaluations on the validation split; default: 1.
    eval_every_epochs: float | None = None
    # Steps between evaluations on the validation split.
    eval_every_steps: int | None = None
    # Stop after this many evaluations without improvement of early_stop_metric.
    early_stop_patience: int | None = None
    # Validation metric that early stopping watches.
    early_stop_metric: Metric = "loss"

    def validate(self) -> None:
        self._positive("epochs", "steps", "examples", "stop_after_steps")
        self._positive("steps_per_call", "accumulate_steps", "max_bad_steps")
        self._seconds("step_timeout_seconds")
        self._positive("eval_every_epochs", "eval_every_steps", "early_stop_patience")
        self._fraction("label_smoothing", "ema_decay")
        self._positive("spike_sigma")
        self._check("spike_window", self.spike_window >= 10, "10 or more")
        for name, default in (("spike_window", 100), ("on_spike", "warn")):
            value = getattr(self, name)
            if self.spike_sigma is None and value != default:
                raise UserError(
                    f"{name} = {value!r} has no effect without train.spike_sigma: set "
                    "that too, to 10 for example"
                )
        if self.epochs is self.steps is self.examples is None:
            raise UserError("give the run's length: epochs, steps or examples")


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig(_Section):
    # Epochs between checkpoints; default: 1. One is always saved at the end.
    every_epochs: float | None = None
    # Steps between checkpoints.
    every_steps: int | None = None
    # Minutes between checkpoints.
    every_minutes: float | None = None
    # Newest checkpoints kept.
    keep: int = 3
    # Best checkpoints kept, by best_metric on the validation split.
    keep_best: int = 1
    # Keep also the checkpoints whose step is a multiple of this.
    keep_every_steps: int | None = None
    # Validation metric that makes a checkpoint the best.
    best_metric: Metric = "accuracy"
    # Seconds from the signal to stop until the run is saved, else it ends as it is:
    # fewer than the system grants (Kubernetes 30); None: as long as it takes.
    grace_seconds: float | None = 25.0

    def validate(self) -> None:
        self._positive("every_epochs", "every_steps", "every_minutes", "keep")
        self._positive("keep_every_steps")
        self._seconds("grace_seconds")
        self._not_negative("keep_best")


@dataclass(frozen=True, kw_only=True)
class LoggingConfig(_Section):
    # Steps between lines of metrics.
    every_steps: int = 50
    # Write TensorBoard event files.
    tensorboard: bool = True
    # Weights & Biases project to log to; None: none. Needs the extra `wandb`.
    wandb_project: str | None = None

    def validate(self) -> None:
        self._positive("every_steps")


@dataclass(frozen=True, kw_only=True)
class Config(_Section):
    # Root of all randomness: initial weights, data order, augmentation, dropout.
    seed: int = 0
    # fp32, tf32, bf16, fp16, pure_bf16, fp64, or params=DTYPE,compute=DTYPE,
    # output=DTYPE.
    precision: str = "fp32"
    # What is learnt from: the images, their splits, size and batches.
    data: DataConfig = DataConfig()
    # The network.
    model: ModelConfig = ModelConfig()
    # The method that changes the weights, and its learning rate over the run.
    optimizer: OptimizerConfig = OptimizerConfig()
    # How the devices and processes share the work.
    parallel: ParallelConfig = ParallelConfig()
    # The run: its length, its steps, its evaluations, and when it stops.
    train: TrainConfig = dataclasses.field(
        default_factory=lambda: TrainConfig(epochs=10)
    )
    # What is saved to go on from, how often, and how long it is kept.
    checkpoint: CheckpointConfig = CheckpointConfig()
    # What is written to follow a run.
    logging: LoggingConfig = LoggingConfig()

    def validate(self) -> None:
        self._check("seed", 0 <= self.seed < 2**32, "a number from 0 to 2**32 - 1")
        for group in ONE_OF:
            given = {
                path: value for path in group if (value := get(self, path)) is not None
            }
            if len(given) > 1:
                shown = " and ".join(
                    f"{path} = {value}" for path, value in given.items()
                )
                raise UserError(f"{shown}: give one of {', '.join(group)}")
        if self.data.batch_size % self.train.accumulate_steps:
            raise UserError(
                f"data.batch_size = {self.data.batch_size} is not divisible by "
                f"train.accumulate_steps = {self.train.accumulate_steps}"
            )
        group = self.parallel.batch_norm
        if group != "global" and self.micro_batch_size % group:
            raise UserError(
                f"parallel.batch_norm = {group} does not divide the "
                f"{self.micro_batch_size} examples of data.batch_size / "
                "train.accumulate_steps"
            )

    @property
    def micro_batch_size(self) -> int:
        """Examples, of all devices, that go through the model together."""
        return self.data.batch_size // self.train.accumulate_steps

    @property
    def norm_groups(self) -> int:
        """Parts of a micro-batch that batch norm takes by themselves."""
        group = self.parallel.batch_norm
        return 1 if group == "global" else self.micro_batch_size // group


def get(config: Any, path: str) -> Any:
    """Return the value at a dotted path, such as `optimizer.learning_rate`."""
    for name in path.split("."):
        config = getattr(config, name)
    return config


def replace(config: T, path: str, value: Any) -> T:
    """Return a copy of `config` with the value at a dotted path replaced."""
    name, _, rest = path.partition(".")
    if rest:
        value = replace(getattr(config, name), rest, value)
    return dataclasses.replace(config, **{name: value})  # type: ignore[type-var]


def paths(section: type = Config, prefix: str = "") -> list[str]:
    """List the dotted paths of all leaf fields."""
    found = []
    for name, hint in get_type_hints(section).items():
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            found += paths(hint, f"{prefix}{name}.")
        else:
            found.append(f"{prefix}{name}")
    return found


def to_json(config: Config) -> str:
    return json.dumps(dataclasses.asdict(config), indent=2) + "\n"


def from_json(text: str) -> Config:
    """Read back what `to_json` wrote.

    Raises:
      UserError: the text is not JSON, or names a field that is not known.
    """
    try:
        return _from_dict(Config, json.loads(text))
    except (json.JSONDecodeError, TypeError, AttributeError) as error:
        raise UserError(f"not a config of this version of jaxtrain: {error}") from None


def differences(old: Config, new: Config) -> list[str]:
    """List the fields, as `path: old -> new`, that make `new` another training run."""
    return [
        f"{path}: {get(old, path)!r} -> {get(new, path)!r}"
        for path in paths()
        if get(old, path) != get(new, path) and not _within(path, MAY_CHANGE_ON_RESUME)
    ]


def _within(path: str, prefixes: Sequence[str]) -> bool:
    return any(path == p or path.startswith(p + ".") for p in prefixes)


def _from_dict(section: type, values: dict[str, Any]) -> Any:
    hints = get_type_hints(section)
    arguments = {}
    for name, value in values.items():
        hint = hints.get(name)
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            value = _from_dict(hint, value)
        elif isinstance(value, list):
            value = tuple(value)
        arguments[name] = value
    return section(**arguments)

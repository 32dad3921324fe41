"""Tiny runs in float64, one of each feature that may depend on how a run is done."""

import functools
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers.composed import compose, write
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import ROOT, Cli, run_two
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.taught import write_teacher

STEPS = 9
METHODS = {
    "sam": "SamConfig",
    "trades": "TradesConfig",
    "adversarial": "AdversarialConfig",
    "distillation": "DistillationConfig",
}


def feature(optimizer: str = "", train: str = "", **sections: str) -> str:
    """Return a recipe: an epoch of 5 steps, warm-up, micro-batches of 8, clipping.

    Args:
      optimizer: Constructor call, without the fields that all have.
      train: Fields of the section, beside those that all have.
      sections: Other sections.
    """
    fields = optimizer or "SGDConfig(learning_rate=0.01, momentum=0.9)"
    parts = {
        "precision": '"fp64"',
        "data": 'DataConfig(source="synthetic:8x8x1/4/96", batch_size=16)',
        "model": 'ConvNetConfig(name="convnet", width=0.5, dropout=0.1)',
        "optimizer": f"{fields[:-1]}, warmup_steps=2, weight_decay=0.01, "
        "clip_norm=1.0)",
        "train": f"TrainConfig(steps={STEPS}, accumulate_steps=2, eval_every_steps=2"
        f"{', ' * bool(train)}{train})",
        "checkpoint": "CheckpointConfig(every_steps=3)",
        "logging": "LoggingConfig(every_steps=1, tensorboard=False)",
        **sections,
    }
    return recipe(**parts)


def method(name: str, **options: Any) -> str:
    words = ", ".join(f"{field}={value!r}" for field, value in options.items())
    return feature(method=f"{METHODS[name]}({words})")


def pruned(fields: str) -> str:
    return feature(train="ema_decay=0.9", prune=f"PruneConfig({fields})")


def fast(name: str, shape: str) -> tuple[str, str]:
    """Return a recipe of the speed runs, and flags that make it tiny.

    It is as narrow as leaves each part something to do, at a rate at which a difference
    of rounding does not grow.
    """
    path = str(ROOT / "configs" / f"{name}.py")
    small = (
        f"--precision fp64 --model.width 0.0625 --data.source synthetic:{shape}/10/96 "
        "--data.batch-size 32 --data.eval-batch-size 32 --logging.every-steps 1 "
        f"--optimizer.learning-rate 0.001 --train.epochs None --train.steps {STEPS}"
    )
    return f"__import__('runpy').run_path({path!r})['get_config']()", small


# Digits of 16x16 pixels with crops and flips.
DIGITS = {
    "data": 'DataConfig(source="digits", batch_size=64, eval_batch_size=64, '
    'test_split="test[:100]", validation_fraction=0.02, image_size=16, '
    "augment=AugmentConfig(crop_padding=1, horizontal_flip=True))",
    "train": "ema_decay=0.9",
    # At a rate of 0.1 a difference of rounding grows tenfold in a step.
    "optimizer": "SGDConfig(learning_rate=0.001)",
}
EMBEDDED = {
    "data": 'DataConfig(source="digits", batch_size=32, eval_batch_size=16, repeats=2, '
    "augment=AugmentConfig(crop_padding=1))",
}
# After steps 3, 4, 5, 6 and 7, or after the third alone.
GRADUAL = "sparsity=0.8, start_epochs=0.6, end_epochs=1.4"
FEATURES: dict[str, str | tuple[str, str]] = {
    "digits": feature(**DIGITS),
    "groups": feature(**DIGITS, parallel="ParallelConfig(batch_norm=8)"),
    "swa": feature(train="swa_start_epochs=0.4, swa_factor=1.0"),
    "schedule_free_sgd": feature(
        "ScheduleFreeSGDConfig(layer_decay=0.9, learning_rate=0.02)"
    ),
    # Norms over single examples, whose statistics the devices share.
    "schedule_free_adamw": feature(
        "ScheduleFreeAdamWConfig(learning_rate=0.001)",
        parallel="ParallelConfig(batch_norm=1)",
    ),
    "lookahead": feature(
        "SGDConfig(layer_decay=0.9, learning_rate=0.01, lookahead_steps=2)"
    ),
    "prodigy": feature("ProdigyConfig(learning_rate=1.0)"),
    "dadapt_adamw": feature("DAdaptAdamWConfig(learning_rate=1.0)"),
    "plateau": feature(
        "SGDConfig(learning_rate=0.01, schedule=PlateauSchedule(patience=1))"
    ),
    **{
        name: feature(f"{kind}(learning_rate=0.01, clip_ratio=0.02)")
        for name, kind in (
            ("adan", "AdanConfig"),
            ("ademamix", "AdEMAMixConfig"),
            ("adopt", "AdoptConfig"),
        )
    },
    "pruned": pruned(f'{GRADUAL}, layers=("conv*", "head")'),
    "pruned by a pattern": pruned(
        'pattern="2:4", start_epochs=0.6, layers=("conv*", "head")'
    ),
    # The backbone is trained later, or never: what it puts out is computed once.
    "frozen at first": feature(
        "AdamWConfig(learning_rate=0.01, layer_decay=0.5)",
        'freeze=("backbone",), freeze_epochs=1, ema_decay=0.9',
    ),
    "frozen": feature(train='freeze=("backbone",), ema_decay=0.9'),
    "int8": feature(
        "SGDConfig(learning_rate=0.01, schedule=StepSchedule(milestones=(0.75,)))",
        model='ConvNetConfig(name="convnet", width=0.0625, quantize="int8")',
    ),
    "arcface": feature(task="EmbeddingConfig(size=8, scale=16.0)", **EMBEDDED),
    # Its loss compares each example with the others of a batch.
    "contrastive": feature(
        task='EmbeddingConfig(loss="contrastive", size=8)', **EMBEDDED
    ).replace("accumulate_steps=2", "accumulate_steps=1"),
    # Missing and mixed labels, weights and the asymmetric loss.
    "labels": feature(
        task='MultilabelConfig(loss="asymmetric", positive_weights="balanced")',
        data='DataConfig(source="csv:set/list.csv", targets=("TARGETS",), '
        "image_size=16, channels=1, batch_size=32, eval_batch_size=16, "
        "validation_fraction=0.25, augment=AugmentConfig(mixup=0.2))",
    ),
    "sam": method("sam"),
    "trades": method("trades", norm="l2", steps=2, epsilon=0.1),
    "adversarial": method("adversarial", norm="l2", steps=2, epsilon=0.1),
    "distillation": method("distillation", teacher="teacher"),
    "fashion_mnist_fast": fast("fashion_mnist_fast", "28x28x1"),
    "cifar10_fast": fast("cifar10_fast", "32x32x3"),
}


class Runs:
    """Runs of features in one folder; that of one device is done once."""

    def __init__(self, folder: Path):
        self.folder = folder
        write_teacher(folder / "teacher")
        made = {"train": compose(64), "test": compose(16, split="test")}
        table = write(folder / "set", made)
        text = table.read_text().replace("000003.png,train,0", "000003.png,train,")
        table.write_text(text)
        self._targets = repr(made["train"].names)
        self.whole = functools.cache(self._whole)

    def start(
        self, name: str, workdir: Path, devices: int = 1, words: str = ""
    ) -> Path:
        """Train, or go on; of -2 devices two processes have two each."""
        text, flags = one if isinstance(one := FEATURES[name], tuple) else (one, "")
        text = text.replace('("TARGETS",)', self._targets)
        config = write_recipe(self.folder / f"{name}.py", text)
        more = f"{flags} {words}".split()
        words_ = ["--config", config, "--workdir", workdir, *more]
        env = {**FP64, "JAX_NUM_CPU_DEVICES": str(abs(devices))}
        if devices > 0:
            result = Cli(self.folder)(*words_, **env)
        else:
            result = run_two(self.folder, *words_, **env)
        assert result.code == 0, result.stderr
        return workdir

    def _whole(self, name: str) -> Path:
        """Return the workdir of a run that nothing stopped."""
        return self.start(name, self.folder / f"whole {name}")


def assert_near(one: Path, other: Path) -> None:
    """Check that two runs have the same losses, rates, evaluations and zeros."""
    for kind, name in (("train", "loss"), ("train", "learning_rate"), ("eval", "loss")):
        ours, theirs = (
            np.array([line[name] for line in read_lines(run, kind)])
            for run in (one, other)
        )
        np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE)
    ours, theirs = map(read_summary, (one, other))
    assert ours["step"] == theirs["step"] == STEPS
    assert ours.get("sparsity") == theirs.get("sparsity")
    for name, value in theirs["eval"].items():
        found, expected = (np.array(x, float) for x in (ours["eval"][name], value))
        np.testing.assert_allclose(found, expected, TOLERANCE, err_msg=name)

"""The command line as a user meets it: spellings, help, and every bad input."""

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import jax
import pytest

from jaxtrain import cli as cli_lib
from jaxtrain.cli import COMMANDS, main, options_of
from jaxtrain.commands.train import TrainArguments
from jaxtrain.config import (
    Config,
    ConstantSchedule,
    ConvNetConfig,
    CosineSchedule,
    CustomConfig,
    get,
    paths,
    replace,
)
from jaxtrain.config.help import meanings
from jaxtrain.config.overrides import check_shorthands, shorthands
from jaxtrain.config.part import part_classes, part_tables
from jaxtrain.data import SOURCES
from jaxtrain.errors import UserError
from jaxtrain.models import MODELS
from jaxtrain.parallel import devices
from jaxtrain.tasks import TASKS
from jaxtrain.training import OPTIMIZERS, POLICIES, SCHEDULES
from tests.helpers.edited import edit
from tests.helpers.processes import ROOT, Cli
from tests.helpers.recipes import recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_summary
from tests.helpers.waiting import PATIENCE, wait_for_lines, wait_until

DIGITS = str(ROOT / "configs" / "digits.py")


def parse(*words: str) -> Config:
    return cli_lib.parse("train", ["--config", DIGITS, *words]).overrides


@each_row(
    "words",
    [
        ["--optimizer.learning-rate", "0.5"],
        ["--optimizer.learning-rate=0.5"],
        ["--optimizer.learning_rate=0.5"],
        ["--config.optimizer.learning_rate=0.5"],
    ],
)
def test_every_spelling_of_an_override(words: list[str]):
    assert parse(*words).optimizer.learning_rate == 0.5


def test_overrides_keep_the_rest_of_the_file():
    config, changed = parse(), parse("--data.augment.horizontal_flip=True")
    assert (
        changed.data.augment.horizontal_flip and not config.data.augment.horizontal_flip
    )
    assert changed.data.augment.crop_padding == config.data.augment.crop_padding
    assert changed.optimizer == config.optimizer


def test_length_on_the_command_line_replaces_that_of_the_file():
    assert parse().train.epochs is not None
    train = parse("--train.steps", "9").train
    assert (train.epochs, train.steps) == (None, 9)


@pytest.mark.slow
@each_row(
    "words",
    [
        "--optimizer.warmup_steps None",
        "--optimizer.warmup-steps=None",
        "--checkpoint.every-steps None",
        "--train.steps None",
    ],
)
def test_none_leaves_the_other_members_of_its_group(words: str):
    assert parse(*words.split()) == parse()


def test_none_unsets_what_the_file_sets():
    for path in ("optimizer.warmup_fraction", "checkpoint.every_epochs"):
        assert get(parse(), path) is not None
        assert parse(f"--{path}", "None") == replace(parse(), path, None)


def test_a_warm_up_in_another_unit_replaces_that_of_the_file():
    words = "--optimizer.warmup-epochs 0.1 --train.epochs 1"
    optimizer = parse(*words.split()).optimizer
    assert (optimizer.warmup_epochs, optimizer.warmup_fraction) == (0.1, None)


def test_none_and_another_length():
    """Of an option given twice the last counts, as for all others."""
    train = parse("--train.epochs", "None", "--train.steps", "7").train
    assert (train.epochs, train.steps) == (None, 7)
    assert parse("--train.steps", "7", "--train.steps", "None") == parse()
    assert parse("--train.steps=None", "--train.steps=7").train.steps == 7


def test_the_last_config_file_counts():
    words = ["--config", str(ROOT / "configs" / "cifar10.py"), "--config", DIGITS]
    arguments = cli_lib.parse("train", words)
    assert str(arguments.config) == DIGITS and arguments.overrides == parse()


def test_fine_tuning_replaces_the_schedule_of_the_file(
    capsys: pytest.CaptureFixture[str],
):
    assert parse().optimizer.schedule == CosineSchedule()
    config = parse("--train.fine-tune", "True")
    told = capsys.readouterr().err
    assert config.train.fine_tune and config.optimizer.warmup_fraction is None
    assert told == (
        "train.fine_tune sets the schedule and replaces the recipe's "
        f"optimizer.schedule = 'cosine', optimizer.warmup_fraction = {2 / 120!r}\n"
    )
    kept = dataclasses.replace(
        parse().optimizer, schedule=ConstantSchedule(), warmup_fraction=None
    )
    assert config.optimizer == kept
    # A schedule that is given beside it was meant, and does not fit.
    words = ["--train.fine-tune", "True", "--optimizer.schedule", "linear"]
    assert main(["--config", DIGITS, *words]) == 2
    assert "optimizer.schedule = 'linear' with" in capsys.readouterr().err


def test_lists_and_none():
    config = parse("--data.mean", "0.1", "--data.std", "0.2", "--model.dropout", "None")
    assert config.data.mean == (0.1,) and config.model == ConvNetConfig()


def test_help_lists_every_field_with_default_and_meaning(cli: Cli):
    result = cli("--config", DIGITS, "--help-all", COLUMNS="100")  # One column.
    assert result.code == 0
    text = " ".join(result.stdout.replace("\u2502", " ").split())
    names, config = {f"{part}.name" for part in part_tables(Config)}, parse()
    for path in paths(config):
        if path in names:
            continue  # The name of a part is the value of `--optimizer`.
        assert f"--{path.replace('_', '-')}" in text, path
        above, _, name = path.rpartition(".")
        section = type(get(config, above)) if above else Config
        meaning = meanings(section)[name]
        assert meaning and "".join(meaning.split()) in "".join(text.split()), path
    assert "(default: 64)" in text


@each_row("field", part_tables(Config))
def test_options_of_parts_have_meanings(field: str):
    for name, kind in part_classes(part_tables(Config)[field]).items():
        told = meanings(kind)
        assert all(told[option] for option in told if option != "name"), name


FRAME = "\u256d\u256e\u2502\u2500- "


@pytest.fixture
def show_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[str]]:
    """Return the lines that --help shows, without frames."""

    def show(*words: str, ask: Sequence[str] = ("--help",)) -> list[str]:
        monkeypatch.setenv("COLUMNS", "100")  # Wider ones hold two columns.
        with pytest.raises(SystemExit) as end:
            main([*words, *ask])
        assert end.value.code == 0
        lines = capsys.readouterr().out.splitlines()
        return [bare for line in lines if (bare := line.strip(FRAME))]

    return show


def test_help_has_a_sentence_of_its_own_for_each_section(show_help):
    lines = show_help("--config", DIGITS, ask=["--help-all"])
    sections = {path.rpartition(".")[0] for path in paths()} - {""}
    for section in sections:
        sentence = lines[lines.index(f"{section} options") + 1]
        assert sentence.endswith(".")
        assert " ".join(lines).count(sentence) == 1, section


@pytest.mark.slow
def test_help_lists_the_commands_and_each_has_its_own(show_help):
    lines = show_help()
    for name in COMMANDS:
        command = cli_lib.load(name)
        meaning = options_of(command).__doc__
        assert f"{name:<12}{meaning}" in lines
        own = show_help(name)
        assert meaning in own
        call = "main.py" if name == "train" else f"main.py {name}"
        assert f"python {call} {command.EXAMPLE}" in own


def test_help_is_short_and_shows_the_values_of_the_recipe(
    show_help, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(ROOT)  # A long path would take more lines.
    lines = show_help("--config", "configs/digits.py")
    assert 40 <= len(lines) <= 71
    text = " ".join(" ".join(lines).split())
    assert "optimizer.learning-rate 0.002 Peak learning rate, for the global" in text
    assert "resized to; None: as stored" in text
    assert "help-all shows everything" in text
    for path in ("optimizer.b1", "parallel.reduce-dtype", "coordinator"):
        assert path not in text


@pytest.mark.parametrize("command", [["train"], ["evaluate"], ["find-lr"]])
def test_help_on_a_section_shows_all_of_it_and_nothing_else(command, show_help):
    text = " ".join(show_help(*command, ask=["--help", "data"]))
    own = [path for path in paths() if path.startswith("data.")]
    assert len(own) > 50
    for path in own:
        assert f" {path.replace('_', '-')} " in text, path
    assert " optimizer." not in text and " workdir" not in text
    text = " ".join(show_help(*command, ask=["-h", "data.augment", "data.batch-size"]))
    assert " data.augment.mixup " in text and " data.batch-size INT" in text
    assert " data.source " not in text


def test_help_on_what_there_is_not(capsys: pytest.CaptureFixture[str]):
    assert main(["--config", DIGITS, "--help", "optimiser"]) == 2
    told = capsys.readouterr().err
    assert "--help optimiser: no such section; did you mean 'optimizer'?" in told


@pytest.mark.slow
@each_row("name", COMMANDS)
def test_every_command_has_help_on_everything(name: str, show_help):
    lines = show_help(name, ask=["--help-all"])
    assert any("show this help message" in line for line in lines)


@each_row("name", COMMANDS)
def test_the_example_of_a_command_is_one(name: str):
    cli_lib.parse(name, cli_lib.load(name).EXAMPLE.split())


@each_row(
    ("field", "table"),
    [
        ("data.source", SOURCES),
        ("precision", POLICIES),
    ],
)
def test_help_of_a_name_lists_the_rows_of_its_table(field: str, table, show_help):
    text = " ".join(show_help("--config", DIGITS, ask=["--help", field]))
    hint = text.partition(f" {field} STR ")[2].partition("(")[2].partition(")")[0]
    assert hint.startswith(f"one of: {', '.join(table)}; default: ")


@each_row(
    ("field", "table"),
    [
        ("model", MODELS),
        ("model.name", MODELS),
        ("optimizer", OPTIMIZERS),
        ("optimizer.schedule", SCHEDULES),
        ("task", TASKS),
    ],
)
def test_help_of_a_part_lists_the_rows_of_its_table(field: str, table, show_help):
    text = " ".join(show_help("--config", DIGITS, ask=["--help", field]))
    assert f" NAME selects another: {', '.join(table)}; " in text


@pytest.mark.slow
def test_parsing_does_not_wait_for_jax():
    """Nor do help, a mistake, and processes that decode: JAX takes a second or two."""
    program = (
        "import sys\nfrom jaxtrain import cli\nimport jaxtrain.inference.pixels\n"
        f"cli.parse('train', ['--config', {DIGITS!r}])\n"
        "assert cli.main(['--config', 'none.py']) == 2\n"
        "try:\n    cli.main(['--help'])\nexcept SystemExit:\n    pass\n"
        "assert not {'jax', 'flax', 'orbax', 'grain'} & set(sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


@each_row(
    ("words", "expected"),
    [
        ("--config {} --data.batch-siz 3", "main.py --help-all shows all options"),
        (
            "--train.epochs 3",
            "data.augment, model, optimizer, optimizer.schedule, parallel, ",
        ),
        ("evaluate --workdir x --split y --foo", "evaluate --help-all shows all"),
    ],
)
def test_a_wrong_option_points_to_the_help_that_has_them_all(
    words: str, expected: str, capsys: pytest.CaptureFixture[str]
):
    """`--help` alone is short."""
    with pytest.raises(SystemExit, match="2"):
        main([word.format(DIGITS) for word in words.split()])
    told = capsys.readouterr().err
    assert told.count("--help ") == told.count("--help SECTION") == 1
    assert expected in told.splitlines()[-1]


def test_unknown_command_lists_the_known(capsys: pytest.CaptureFixture[str]):
    assert main(["guess"]) == 2
    assert f"'guess': expected {', '.join(COMMANDS)}\n" in capsys.readouterr().err


# (words, what the message names). {digits} stands for the digits recipe.
BAD_INPUT = [
    (["tran"], ["unknown command 'tran'", "did you mean 'train'?"]),
    (["{digits}", "--optimizer.lerning-rate", "1"], ["--optimizer.learning-rate"]),
    (["{digits}", "--optimizer.learning-rate", "fast"], ["'fast'", "learning-rate"]),
    (
        ["{digits}", "--train.epochs", "2", "--train.steps", "3"],
        ["train.epochs = 2.0 and train.steps = 3", "give only one of"],
    ),
    (["{digits}", "--data.batch-size", "2000"], ["2000", "1293 examples"]),
    (["{digits}", "--model.name", "resnet19"], ["resnet19", "resnet18"]),
    (["{digits}", "--model.name", "cnn4"], ["(8, 8, 1)", "cnn4", "16x16"]),
    (["{digits}", "--model.stem", "cifar"], ["stem", "convnet"]),
    (["{digits}", "--optimizer.name", "adm"], ["adm", "adam"]),
    (["{digits}", "--optimizer.momentum", "0.5"], ["momentum", "adamw"]),
    (["{digits}", "--parallel.data", "3"], ["parallel.data = 3", "1"]),
    (
        ["{digits}", "--data.mean", "0", "1", "--data.std", ".5", "1"],
        ["(0.0, 1.0)", "2 v"],
    ),
    (["{digits}", "--train.epochs", "1e30"], ["train.epochs = 1e+30", "2e+31 steps"]),
    (["{digits}", "--optimizer.warmup-epochs", "1e30"], ["warmup", "must be shorter"]),
    (
        ["{digits}", "--optimizer.warmup-fraction", "1"],
        ["optimizer.warmup_fraction = 1: ", "shorter warm-up"],
    ),
    (["{digits}", "--init-timeout", "nan"], ["--init-timeout nan"]),
    (
        ["{digits}", "--train.steps-per-call", "32", "--train.eval-every-epochs", "1"],
        ["steps_per_call = 32", "20 steps (train.eval_every_epochs);", "most 20"],
    ),
]


@pytest.mark.slow
@each_row(("words", "named"), BAD_INPUT)
def test_bad_input_ends_with_one_message(
    words: list[str],
    named: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """Exit code 2, what is wrong and the fix on stderr, and no workdir left behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    if "{digits}" in words:
        place = words.index("{digits}")
        words = [*words[:place], "--config", DIGITS, *words[place + 1 :]]
    try:
        code = main(words)
    except SystemExit as exit_:  # tyro's own
        code = exit_.code
    stderr = capsys.readouterr().err
    assert code == 2, stderr
    for text in named:
        assert text in stderr
    assert "Traceback" not in stderr
    assert not (tmp_path / "runs").exists()


@each_row(
    ("command", "words", "meant"),
    [
        ("train", "--lr 0.1", "--lr: no such option; write --optimizer.learning-rate"),
        ("train", "--optimizer.lr=0.1", "write --optimizer.learning-rate 0.1"),
        ("train", "--batch-size 8", "--batch-size: no such option; write --data.batch"),
        ("train", "--amp --epochs 3", "--amp: no such option; write --precision\n"),
        ("evaluate", "--bs 3", "--bs: no such option; write --data.batch-size 3"),
    ],
)
def test_names_of_other_tools_are_translated(
    command: str, words: str, meant: str, capsys: pytest.CaptureFixture[str]
):
    where = ["--workdir", "x"] if command == "evaluate" else ["--config", DIGITS]
    assert main([command, *where, *words.split()]) == 2
    assert meant in capsys.readouterr().err


def test_a_key_of_a_dict_is_not_a_name_of_another_tool():
    """`steps` of an attack stays what it is, whatever `--steps` stands for."""
    custom = CustomConfig(name="my.py:Method", options={"steps": 2})
    default = TrainArguments(config=Path("x.py"), overrides=Config(method=custom))
    check_shorthands({"method.options.steps": "1"}, default)
    with pytest.raises(UserError, match=r"write --train.steps 1"):
        check_shorthands({"train.other.steps": "1"}, default)


def test_the_names_of_other_tools_are_not_ours():
    default = TrainArguments(config=Path("x.py"), overrides=Config())
    found, known = shorthands(default), {*paths(), "platform", "workdir"}
    assert found["lr"] == "optimizer.learning_rate" and found["arch"] == "model"
    assert found["sched"] == "optimizer.schedule" and found["drop"] == "model.dropout"
    assert set(found.values()) <= known | part_tables(Config).keys()
    assert not set(found) & known


CONFIG_FILES = [
    ("x = 1\n", ["does not define get_config()"]),
    ("def get_config():\n    return {}\n", ["returned dict", "Config"]),
    ("def get_config():\n    return 1 / 0\n", [":2", "ZeroDivisionError"]),
    ("def get_config(:\n", [":1", "SyntaxError"]),
    (
        "from jaxtrain.config import *\ndef get_config():\n"
        "    return Config(optimizer=SGDConfig(lerning_rate=1.0))\n",
        [":3", "lerning_rate", "'learning_rate'"],
    ),
    (
        "from jaxtrain.config import *\ndef get_config():\n"
        "    return Config(optimizer=SGDConfig(b1=0.5))\n",
        [":3", "'b1'; b1 is an option of adam, adamw, "],
    ),
    (
        "from jaxtrain.config import *\ndef get_config():\n"
        "    return Config(optimizer=SGDConfig(learning_rate='1'))\n",
        [":3", "learning_rate = '1'", "float"],
    ),
    (
        "from jaxtrain.config import *\ndef get_config():\n"
        "    return Config(model=ConvNetConfig(width=-1.0))\n",
        [":3", "width = -1.0", "above 0"],
    ),
]


@each_row(("text", "named"), CONFIG_FILES)
def test_bad_config_file_is_named_with_its_line(
    text: str, named: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "bad.py"
    path.write_text(text)
    assert main(["--config", str(path)]) == 2
    stderr = capsys.readouterr().err
    for part in [str(path), *named]:
        assert part in stderr
    assert "Traceback" not in stderr


def test_workdir_that_cannot_be_written(cli: Cli, tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("kept")
    result = cli("--config", DIGITS, "--workdir", file / "run")
    assert result.code == 2, result.stderr
    assert str(file / "run") in result.stderr and "Traceback" not in result.stderr
    assert file.read_text() == "kept"


@pytest.mark.slow
def test_devices_that_cannot_share_a_batch(cli: Cli):
    result = cli("--config", DIGITS, "--data.batch-size", 60, JAX_NUM_CPU_DEVICES="8")
    assert result.code == 2, result.stderr
    assert "data.batch_size = 60" in result.stderr
    assert "56 or 64" in result.stderr


@pytest.fixture
def no_platform_chosen() -> Iterator[None]:
    chosen = getattr(jax.config, "jax_platforms")  # noqa: B009
    jax.config.update("jax_platforms", None)
    yield
    jax.config.update("jax_platforms", chosen)


@pytest.mark.usefixtures("no_platform_chosen")
def test_falling_back_to_the_cpu_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(devices, "nvidia_gpus", lambda: ["NVIDIA H200"])
    with pytest.raises(UserError, match=r"NVIDIA H200.*\[cuda12\].*--platform cpu"):
        devices.start("auto")
    devices.start("cpu")  # Chosen here, or by JAX_PLATFORMS: no fallback.
    devices.start("auto")


def homeless(code: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run code as a user without $HOME and without an entry in the list of users."""
    no_entry = "import pwd\ndef getpwuid(uid):\n    raise KeyError(uid)\n"
    env = {**os.environ, **env}
    for name in ("HOME", "JAX_COMPILATION_CACHE_DIR"):
        env.pop(name, None)
    return subprocess.run(
        [sys.executable, "-c", f"{no_entry}pwd.getpwuid = getpwuid\n{code}"],
        env=env,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


@pytest.mark.exhaustive
def test_a_user_without_a_home_trains_without_a_cache(tmp_path: Path, write_config):
    model = "LeNetConfig()"
    data = 'DataConfig(source="synthetic:16x16x1/4/96", batch_size=16)'
    train = "TrainConfig(steps=1)"
    config = write_config(recipe(model=model, data=data, train=train))
    words = ["--config", str(config), "--workdir", str(tmp_path / "run")]
    code = f"from jaxtrain.cli import main\nassert main({words!r}) == 0"
    result = homeless(code, XDG_CACHE_HOME="")
    assert result.returncode == 0, result.stderr
    assert read_summary(tmp_path / "run")["step"] == 1
    assert not (ROOT / "~").exists()


@pytest.mark.slow
def test_a_user_without_a_home_may_name_a_cache(tmp_path: Path):
    code = "from jaxtrain.parallel import devices\ndevices.start('cpu')"
    result = homeless(code, XDG_CACHE_HOME=str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "jaxtrain" / "xla").is_dir()


def test_programs_are_not_kept_where_others_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """They are run."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert devices.cache_folder("xla") == tmp_path / "jaxtrain" / "xla"
    (tmp_path / "jaxtrain" / "xla").chmod(0o777)
    assert devices.cache_folder("xla") is None
    told = capsys.readouterr().err
    assert f"{tmp_path}/jaxtrain/xla" in told and "JAX_COMPILATION_CACHE_DIR" in told


@pytest.mark.slow
def test_missing_gpu_is_refused(cli: Cli):
    result = cli.process("--config", DIGITS, "--platform", "gpu", JAX_PLATFORMS="")
    assert result.code == 2, result.stderr
    assert "[cuda12]" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.slow
def test_numbers_that_go_bad_end_with_code_5(cli: Cli, write_config):
    """A learning rate of 1e30 overflows: the state before it is what is saved."""
    config = write_config(
        recipe(
            optimizer="SGDConfig(learning_rate=1e30)",
            train="TrainConfig(steps=100, max_bad_steps=5)",
            checkpoint="CheckpointConfig(every_steps=1)",
        )
    )
    result = cli("--config", config, "--workdir", "run")
    assert result.code == 5, result.stderr
    for part in ("5 non-finite steps in a row", "run/checkpoints/", "learning_rate"):
        assert part in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_bad_numbers_are_seen_between_lines_of_metrics(cli: Cli, write_config):
    config = write_config(
        recipe(
            optimizer="SGDConfig(learning_rate=1e30)",
            train="TrainConfig(steps=60, max_bad_steps=3)",
            checkpoint="CheckpointConfig(every_steps=10)",
            logging="LoggingConfig(every_steps=1000)",
        )
    )
    result = cli("--config", config, "--workdir", "run")
    assert result.code == 5, result.stderr
    assert "step 3: 3 non-finite steps in a row" in result.stderr
    assert "the update is not finite" in result.stderr
    assert not any((cli.directory / "run" / "checkpoints").iterdir())
    # Nothing was saved, so the corrected config may use the folder.
    words = ["--optimizer.learning-rate", "0.1", "--train.steps", "2"]
    result = cli("--config", config, "--workdir", "run", *words)
    assert result.code == 0, result.stderr


def test_damaged_file_of_a_workdir_is_named(cli: Cli, write_config):
    config = write_config(recipe(train="TrainConfig(steps=2)"))
    assert cli("--config", config, "--workdir", "run").code == 0
    for name in ("config.json", "summary.json"):
        path = cli.directory / "run" / name
        good = path.read_bytes()
        path.write_bytes(b"\xff{")
        result = cli("--config", config, "--workdir", "run")
        assert result.code == 2, result.stderr
        assert f"run/{name}" in result.stderr and "Traceback" not in result.stderr
        path.write_bytes(good)


@pytest.mark.slow
def test_two_runs_in_one_workdir_are_refused(cli: Cli, write_config):
    config = write_config(recipe(train="TrainConfig(steps=100000)"))
    words = ["--config", config, "--workdir", "run"]
    first = cli.start(*words)
    wait_for_lines(cli.directory / "run" / "metrics.jsonl", 1, first)
    second = cli(*words)
    first.kill()
    first.communicate()
    assert second.code == 2, second.stderr
    assert "another process trains in run" in second.stderr


# The command line, which reads one image after the other, for minutes.
READS = """
import pathlib, time
from jaxtrain.__main__ import run
from jaxtrain.data import image_source, loader

def read_slowly(*args, **kwargs):
    pathlib.Path("reads").touch()
    time.sleep(0.5)
    return read(*args, **kwargs)

read = image_source.Source.read
image_source.Source.read, READ_BLOCK = read_slowly, 1
run()
"""


@pytest.mark.slow
def test_signal_before_there_is_anything_to_save(cli: Cli, write_config):
    words = ["--config", write_config(recipe()), "--workdir", "run"]
    process = cli.start(*words, program=READS)
    wait_until((cli.directory / "reads").exists, process)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143, stderr
    assert "no progress is lost" in stderr and "Traceback" not in stderr


def test_unexpected_state_in_a_checkpoint_is_refused(cli: Cli, write_config):
    """Another model under the same config file name, as after an edit of the code."""
    config = write_config(recipe(train="TrainConfig(steps=3)"))
    assert cli("--config", config, "--workdir", "run").code == 0
    other = recipe(
        train="TrainConfig(steps=5)",
        model='ConvNetConfig(name="convnet", width=0.25, dropout=0.1)',
    )
    write_config(other)
    run = cli.directory / "run"
    edit(run / "config.json", model__width=0.25)
    result = cli("--config", config, "--workdir", "run")
    assert result.code == 2, result.stderr
    assert "params/conv1/kernel: float32[3, 3, 1, 8] in the checkpoint" in result.stderr


@pytest.mark.slow
def test_checkpoints_are_listed_and_verified(cli: Cli, write_config, tmp_path: Path):
    config = write_config(
        recipe(
            train="TrainConfig(steps=20)", logging="LoggingConfig(tensorboard=False)"
        )
    )
    assert cli("--config", config, "--workdir", "run").code == 0
    listed = cli("checkpoint", "--list", "--workdir", "run")
    assert listed.code == 0
    lines = listed.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["10", "20"]
    assert "MB" in lines[0] and "accuracy" in lines[1]
    verified = cli("checkpoint", "--verify", "--workdir", "run")
    assert verified.code == 0
    assert all(line.endswith("good") for line in verified.stdout.splitlines())
    names = ["config.json", "data.json", "model.json", "summary.json"]
    assert [line.split()[0] for line in verified.stdout.splitlines()[2:]] == names
    state = tmp_path / "run" / "checkpoints" / "10" / "state"
    part = next(state.glob("params.head.linear.bias/c/*"))
    part.write_bytes(bytes(part.stat().st_size))
    verified = cli("checkpoint", "--verify", "--workdir", "run")
    assert verified.code == 1
    assert "1 damaged checkpoint" in verified.stderr and "(10)" in verified.stderr
    assert "DAMAGED" in verified.stdout.splitlines()[0]
    assert verified.stdout.splitlines()[1].endswith("good")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--list --workdir nowhere", "nowhere: the directory has no checkpoints"),
        ("--workdir nowhere", "give either --list or --verify"),
    ],
)
def test_checkpoints_that_cannot_be_shown(cli: Cli, words: str, named: str):
    result = cli("checkpoint", *words.split())
    assert result.code == 2
    assert named in result.stderr

"""What a saved run or model names as code does not run, unless it is allowed."""

import ast
import dataclasses
import hashlib
import importlib.util
import json
import py_compile
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.numpy import save

import jaxtrain
from jaxtrain import cli, own
from jaxtrain.cli import main
from jaxtrain.config import Config, ConvNetConfig, LeNetConfig, from_json, to_json
from jaxtrain.errors import UntrustedError, UserError
from jaxtrain.json_files.run_id import RunId
from jaxtrain.json_files.write import write_json
from jaxtrain.records.workdir import OWN_PARTS, open_workdir, read_own_parts
from jaxtrain.weights import folder, hub
from jaxtrain.weights.description import Description
from jaxtrain.weights.trust import trust
from tests.helpers import described
from tests.helpers.installed import HAS_PLUGINS, installed
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.trees import nodes

# Leaves a mark where it runs; of a name that no other module has.
PAYLOAD = """
from pathlib import Path
Path("ran").touch()
def part(*args, **options):
    raise ValueError("it was called")
"""
FILE, MODULE = "trust_payload.py:part", "trust_package.payload:part"
# Fields of a config -> how one of them names a part.
FIELDS = {
    "model.name": "{}",
    "data.source": "{}",
    "task.name": "{}",
    "optimizer.name": "{}",
    "optimizer.schedule.name": "{}",
    "train.metrics": ["{}"],
    "data.augment.own": ["{}"],
}
OF_EVALUATION = ("model.name", "data.source", "task.name", "train.metrics")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with a payload as a file and as a module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(own, "_decided", {})
    (tmp_path / "trust_payload.py").write_text(PAYLOAD)
    package = tmp_path / "trust_package"
    package.mkdir()
    (package / "__init__.py").write_text(PAYLOAD)
    (package / "payload.py").write_text(PAYLOAD)
    (tmp_path / "cat.png").touch()
    yield tmp_path
    forget()


def forget() -> None:
    """Forget what ran, what was allowed, and the folders that a test has written."""
    for name in list(sys.modules):
        if name.startswith("trust_pa"):
            del sys.modules[name]
    own._decided.clear()
    Path("ran").unlink(missing_ok=True)
    for name in ("run", "exported"):
        shutil.rmtree(name, ignore_errors=True)


def ran() -> bool:
    return Path("ran").exists()


def describe(name: str, task: str = "classification") -> Description:
    return described.describe(
        name,
        (8, 8, 1),
        task=task,
        num_outputs=2,
        class_names=None if task != "classification" else ("a", "b"),
    )


def write_run(field: str, part: str, name: str = "run") -> Path:
    """Write the folder of a run, as far as it is read before a checkpoint."""
    place = Path(name)
    (place / "checkpoints").mkdir(parents=True)
    run_id = RunId.new(place)
    config = json.loads(to_json(Config(), run_id))
    config["task"] = {"name": "classification", "options": {}}
    if field != "task.name":
        del config["task"]["options"]
    del config["sha256"]  # An attacker would write that of what is there.
    section, last = config, field.split(".")
    for word in last[:-1]:
        section = section[word]
    filled = json.dumps(FIELDS[field]).replace("{}", part)
    if last[0] in ("model", "optimizer"):
        section.clear()
    section[last[-1]] = json.loads(filled)
    (place / "config.json").write_text(json.dumps(config))
    about = describe(part if field == "model.name" else "lenet")
    write_json(place / "model.json", run_id.stamp(about.to_dict()))
    return place


def write_exported(about: Description, digests: dict[str, str] | None = None) -> Path:
    """Write a folder as `export --format safetensors` does, without an array."""
    place = Path("exported")
    place.mkdir()
    described = {
        "model": about.to_dict(),
        "origin": {"step": 1, "run": "?", "weights": folder.digest({})},
    }
    if digests is not None:
        described[folder.OWN_PARTS] = digests
    write_json(place / "config.json", {folder.OURS: described})
    (place / "model.safetensors").write_bytes(save({}))
    return place


def sha256(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


RUN = {
    "predict --workdir run cat.png": ("model.name",),
    "serve --workdir run --port 0": ("model.name",),
    "export --workdir run --format safetensors --out new": ("model.name",),
    "evaluate --workdir run": OF_EVALUATION,
    "data --check --workdir run": (*OF_EVALUATION, "data.augment.own"),
    "report --workdir run": tuple(FIELDS),
}
CASES = [(words, field) for words in installed(RUN) for field in RUN[words]]


def refused(words: str, field: str, part: str, capsys: pytest.CaptureFixture) -> None:
    """Run a command, which must name the part and how to allow it, once, and end."""
    assert main(words.split()) == 2
    told = capsys.readouterr().err
    assert f"{field} = {part!r} is custom code" in told and "give --trust" in told
    assert told.count("error:") == 1 and "Traceback" not in told
    assert not ran()


@each_row(("words", "field"), CASES)
def test_run_does_not_run_a_file(words: str, field: str, capsys):
    forget()
    write_run(field, FILE)
    refused(words, field, FILE, capsys)
    assert not Path("new").exists() and not Path("run/report.html").exists()


EXPORTED = [
    "predict --workdir exported cat.png",
    "predict --workdir exported/model.safetensors cat.png",
    "predict --workdir hf:owner/name cat.png",
    "serve --workdir exported --port 0",
    "export --workdir exported --format safetensors --out new",
    "evaluate --workdir exported --data.source synthetic:8x8x1/2/8 --out new.json",
]


@pytest.fixture
def on_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "fetch", lambda *_: Path("exported").absolute())


@each_row("part", [FILE, MODULE])
@each_row("words", installed(EXPORTED))
def test_exported_model_does_not_run(words: str, part: str, on_hub, capsys):
    forget()
    write_exported(describe(part))
    refused(words, "model.name", part, capsys)


@each_row("field", FIELDS)
@each_row("part", [FILE, MODULE])
def test_trust_allows_what_a_run_names(part: str, field: str, capsys):
    forget()
    trust(write_run(field, part))
    assert f"{field} = {part!r} is allowed" in capsys.readouterr().err
    assert not ran()
    assert callable(own.load(field, part)) and ran()


PRETRAINED = [
    "--config recipe.py --workdir new",
    "find-lr --config recipe.py --out new",
    "plan --config recipe.py --target cpu --out new",
    "data --preview --config recipe.py --out new.png",
]


@pytest.mark.parametrize("words", installed(PRETRAINED))
def test_weights_to_begin_with_do_not_run(words: str, capsys):
    write_run("model.name", FILE)
    model = 'LeNetConfig(pretrained="run")'
    write_recipe(Path("recipe.py"), recipe(model=model))
    refused(words, "model.name", FILE, capsys)
    assert main([*words.split(), "--trust"]) == 2  # There is no checkpoint.
    told = capsys.readouterr().err
    assert f"model.name = {FILE!r} is allowed" in told and "no checkpoint" in told


@pytest.mark.plugins
@pytest.mark.parametrize("place", ["run", "exported"])
def test_new_recipe_names_no_part_of_the_weights(place: str, capsys):
    """What a recipe names is loaded: it would be allowed from there on."""
    write_run("model.name", FILE)
    write_exported(describe(FILE))
    words = f"new --data digits --out new.py --pretrained {place}"
    refused(words, "model.name", FILE, capsys)
    assert not Path("new.py").exists()


def test_trust_without_a_folder_has_no_effect(capsys):
    write_recipe(Path("recipe.py"), recipe())
    words = ["--config recipe.py", "plan --target cpu --config recipe.py"]
    words += ["data --check --source digits", "find-lr --config recipe.py"]
    words += ["report --workdir run --compare run", "new --data digits --out new.py"]
    for each in installed(words):
        assert main([*each.split(), "--trust"]) == 2
        assert "--trust has no effect with" in capsys.readouterr().err
    write_exported(describe("lenet"))
    trust("exported")
    assert "exported names no custom code" in capsys.readouterr().err


@pytest.mark.plugins
def test_trust_has_no_effect_where_files_are_verified(capsys):
    assert main(["data", "--verify", "x", "--trust"]) == 2
    assert "--trust has no effect with --verify" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    installed(
        [
            "serve --workdir nowhere",
            "new --data digits --out new.py --pretrained nowhere",
            "data --check --workdir nowhere",
            "--config recipe.py --model.pretrained nowhere",
        ]
    ),
)
def test_trust_of_a_path_that_is_not_there(words: str, capsys):
    write_recipe(Path("recipe.py"), recipe())
    assert main([*words.split(), "--trust"]) == 2
    told = capsys.readouterr().err
    assert "error: nowhere does not exist: give the directory of a run" in told
    assert "names no parts" not in told


def test_python_has_the_same_argument(capsys):
    write_exported(describe(FILE))
    with pytest.raises(UntrustedError, match=r"trust=True"):
        jaxtrain.load_model("exported")
    assert not ran()
    with pytest.raises(
        UserError, match="the constructor failed: ValueError: it was called"
    ):
        jaxtrain.load_model("exported", trust=True)
    assert ran()


def test_python_trains_from_weights_with_the_same_argument():
    write_run("model.name", FILE)
    config = dataclasses.replace(
        from_json(Path("run/config.json").read_text()),
        model=LeNetConfig(pretrained="run"),
    )
    with pytest.raises(UntrustedError):
        jaxtrain.train(config, "new")
    assert not ran()
    with pytest.raises(UserError, match="has no checkpoint"):
        jaxtrain.train(config, "new", trust=True)
    plain = dataclasses.replace(config, model=ConvNetConfig())
    with pytest.raises(UserError, match="--trust has no effect"):
        jaxtrain.train(plain, "new", trust=True)


def test_what_the_user_names_runs(capsys):
    """In Python a config, on the command line an option or the recipe."""
    write_run("task.name", FILE)
    config = from_json(Path("run/config.json").read_text())
    with pytest.raises(Exception, match="it was called"):
        jaxtrain.train(config, "new")


@pytest.mark.parametrize(
    "words",
    installed(
        [
            "data --check --source trust_payload.py:part",
            "data --pack trust_payload.py:part --out new",
            "evaluate --workdir run --data.source ./trust_payload.py:part",
            "evaluate --workdir run --data.source=trust_payload.py:part",
            "train --config recipe.py --workdir new "
            "--data.source trust_payload.py:part",
        ]
    ),
)
def test_an_option_allows_the_part_that_it_names(words: str):
    write_run("data.source", FILE)
    write_recipe(Path("recipe.py"), recipe())
    command, *options = words.split()
    cli.parse(command, options)
    assert own.decided() == {(str(Path("trust_payload.py").resolve()), "part"): None}


def test_config_of_a_run_allows_nothing():
    write_run("data.source", FILE)
    cli.parse("evaluate", ["--workdir", "run", "--split", "all"])
    assert own.decided() == {}


def test_names_of_images_allow_nothing(capsys):
    """A shell puts them into the command, and a folder may hold any."""
    write_run("model.name", FILE)
    Path(FILE).touch()
    words = f"predict --workdir run --strict {FILE} cat.png"
    refused(words, "model.name", FILE, capsys)


def test_another_name_of_an_allowed_file_is_another_part():
    own.allow([FILE])
    own.check_allowed("task", "./trust_payload.py:part")
    with pytest.raises(UntrustedError):
        own.check_allowed("task", "trust_payload.py:Path")


def test_a_command_forgets_what_others_allowed(capsys):
    own.allow([FILE])
    write_run("model.name", FILE)
    refused("predict --workdir run cat.png", "model.name", FILE, capsys)
    own.check_allowed("task", FILE)


def test_digest_is_shown_and_compared(capsys):
    digest = sha256("trust_payload.py")
    write_exported(describe(FILE), {"trust_payload.py": digest})
    trust("exported")
    told = capsys.readouterr().err
    assert f"{Path.cwd()}/trust_payload.py, sha256 {digest}, as recorded" in told


@pytest.mark.parametrize("part", [FILE, MODULE])
def test_changed_file_is_refused_with_both_digests(part: str, capsys):
    place = own.module_of(part)
    write_exported(describe(part), {place: "0" * 64})
    words = "predict --workdir exported cat.png --trust"
    assert main(words.split()) == 2
    told = capsys.readouterr().err
    file = own.find_file(part)
    assert f"{file} has sha256 {sha256(str(file))}, and {'0' * 64}" in told
    assert "restore the file, or export the model again" in told and not ran()


def test_nothing_recorded_is_told(capsys):
    trust(write_run("model.name", FILE))
    assert "no digest is recorded" in capsys.readouterr().err


def test_run_records_the_digests_of_its_parts(capsys):
    """Naming the part again, by the training command, accepts a change."""
    place = write_run("train.metrics", FILE)
    (place / "model.json").unlink()  # A run writes it later.
    config = from_json((place / "config.json").read_text())
    open_workdir(place, config, {}, fresh=False)
    recorded = read_own_parts(place)
    assert recorded == {"trust_payload.py": sha256("trust_payload.py")}
    trust(place)
    assert "as recorded" in capsys.readouterr().err
    with open("trust_payload.py", "a") as file:
        file.write("# changed\n")
    own._decided.clear()
    trust(place)
    told = capsys.readouterr().err
    assert "is not allowed" in told and "run the training command again" in told
    with pytest.raises(UntrustedError, match="has sha256"):
        own.load("train.metrics", FILE)
    open_workdir(place, config, {}, fresh=False)
    trust(place)
    own.load("train.metrics", FILE)


def test_damaged_record_is_told():
    place = write_run("task.name", FILE)
    (place / OWN_PARTS).write_text("[]")
    with pytest.raises(UserError, match="is not a JSON object"):
        trust(place)


def test_compiled_file_beside_a_part_is_not_run():
    """Python would run it in the place of the file that was shown."""
    Path("other.py").write_text("from pathlib import Path\nPath('hidden').touch()")
    compiled = importlib.util.cache_from_source("trust_payload.py")
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile("other.py", compiled, invalidation_mode=unchecked)
    trust(write_run("task.name", FILE))
    own.load("task", FILE)
    assert ran() and not Path("hidden").exists()


def test_folder_of_the_name_of_a_file_is_not_run():
    Path("trust_payload").mkdir()
    Path("trust_payload/__init__.py").write_text("from pathlib import Path\n")
    own.allow([FILE])
    with pytest.raises(
        UserError, match="another module is already named 'trust_payload'"
    ):
        own.load("task", FILE)
    assert "trust_payload" not in sys.modules


def test_module_without_a_file_is_refused():
    trust(write_run("task.name", "os.path:join"))
    with pytest.raises(UntrustedError, match=r"no source file of os\.path"):
        own.load("task", "os.path:join")


# What makes code of a text, or of a file -> the modules that may.
MAKES_CODE = {
    # The fronts of packages import their own modules by name.
    "import_module": {"own", "plugin", "__init__"}
    | {f"{name}.__init__" for name in ("config", "data", "weights")},
    # And what it has just written itself, to check it.
    "run_path": {"config.user_code", "export.stablehlo"},
}
if HAS_PLUGINS:
    # The standard input and output of its own processes.
    MAKES_CODE["loads pickle"] = {"plugins.plan.gpu_compiler"}
    # Of the library that reads sounds, which may not be there.
    MAKES_CODE["import_module"].add("plugins.sound.sound_files")
NAMES = {"eval", "exec", "compile", "__import__"}


def calls(inside: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield the last name of what is called, and what it is a part of."""
    for node in inside:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, ""
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = ast.unparse(node.func.value)
            # `load()` of an interpreter of ours takes nothing.
            yield node.func.attr, of if node.args else f"{of}()"


@pytest.mark.slow
def test_no_other_module_makes_code_of_data():
    """So that `own.load` and the recipe are the only ways in."""
    found: dict[str, set[str]] = {}
    for path, inside in nodes().items():
        module = ".".join(path.with_suffix("").parts)
        for name, of in calls(inside):
            if of in ("pickle", "dill", "cloudpickle") and name in ("load", "loads"):
                name = "loads pickle"
            builtin = name in NAMES and not of
            if builtin or name in MAKES_CODE or name in ("run_module", "loads pickle"):
                found.setdefault(name, set()).add(module)
    assert found == MAKES_CODE

"""No command writes or deletes outside of a workdir that somebody else made.

Every file and folder of a finished workdir, and others that commands write into it, are
replaced by links to victims outside. A command either leaves all victims as they are,
or refuses and names one of the links; that link is then removed, and it runs again.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxtrain.cli import main
from jaxtrain.records.folder_lock import LOCK
from tests.helpers.installed import installed
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe

RECIPE = recipe(
    data='DataConfig(source="synthetic:8x8x1/4/96", batch_size=16)',
    train="TrainConfig(steps=4, eval_every_steps=2)",
    checkpoint="CheckpointConfig(every_steps=2, keep=2)",
    logging="LoggingConfig(every_steps=2, report=True)",
)
TRAIN = "--config recipe.py --workdir run --train.steps 6 --train.profile-steps 4 6"
TRAIN += " --checkpoint.keep 1"
COMMANDS = (
    f"{TRAIN} --resume-step 2",
    TRAIN,
    f"{TRAIN} --fresh",
    "evaluate --workdir run --calibrate",
    "report --workdir run",
    "report --workdir run --compare other",
    "checkpoint --workdir run --verify",
    "predict --workdir run --out run/predictions.csv --outputs run/outputs image.png",
    "export --workdir run --format stablehlo --out run/exported.stablehlo",
    "average run other --out run/averaged",
    "find-lr --config recipe.py --out run --steps 20",
    "data --check --workdir run --out run",
    "sweep --config recipe.py --space space.py --workdir sweep --trials 2",
)
SPACE = """
def space(trial):
    return {"optimizer.learning_rate": trial.suggest_float("rate", 0.01, 0.1)}
"""
# Written where something is damaged, gone back to, or asked for.
RARE = {
    *("metrics.damaged.jsonl", "metrics.rewound-4.jsonl", "summary.rewound-4.json"),
    *("own_parts.json", "wandb_id", "wandb", LOCK),
    *("checkpoints/6", "checkpoints/quarantine-4", "checkpoints/rewound-4"),
    *("tensorboard/plugins/profile/steps_4_to_6", "study.db-journal", "trial-0001"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two finished runs, and all that the commands write into one."""
    folder = tmp_path_factory.mktemp("made")
    write_recipe(folder / "recipe.py", RECIPE)
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "image.png")
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert main([*TRAIN.split()[:4], "--train.profile-steps", "2", "4"]) == 0
        shutil.copytree("run", "other")
        (folder / "space.py").write_text(SPACE)
        assert main([*COMMANDS[-1].split()[:-1], "1"]) == 0
        for name in ("run", "sweep"):
            shutil.copytree(name, f"start/{name}")
        for command in COMMANDS:
            assert main(command.split()) == 0, command
    finally:
        os.chdir(before)
    return folder


def names_in(run: Path) -> set[str]:
    """Return the names of all that lies in a workdir, and the temporary ones."""
    found = set[str]()
    for place, folders, files in os.walk(run):
        found |= {str(Path(place, n).relative_to(run)) for n in (*folders, *files)}
        # Below are files of single arrays, and the runs of trials.
        folders[:] = [n for n in folders if n != "state" and not n.startswith("trial")]
    found |= RARE
    return found | {f"{name}.tmp" for name in found}


def attack(run: Path, outside: Path, names: Iterable[str], kind: str) -> set[str]:
    """Replace names by links to victims outside; return those that were.

    What is there is moved outside, so that it is read as before. Links of all kinds
    stand for folders, too, but for hard links, which those cannot be.
    """
    links = set[str]()
    for number, name in enumerate(sorted(names)):
        path, victim = run / name, outside / f"{number}-{Path(name).name}"
        if any(str(parent) in links for parent in Path(name).parents):
            continue
        there, is_folder = path.exists(), path.is_dir()
        if kind == "hard link" and not path.suffix:
            continue
        if there and (kind == "dangling" or is_folder != (kind == "folder")):
            continue
        if "profile" in name:  # Names there are those of steps and of the machine.
            path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.parent.is_dir():
            continue
        if there:
            shutil.move(path, victim)
        elif kind == "folder":
            victim.mkdir()
        elif kind != "dangling":
            victim.write_text("old")
        if kind == "folder":
            for step in ("1", "3"):
                (victim / step).mkdir()
                (victim / step / "photo").write_text("precious")
            (victim / "1" / "commit_success.txt").touch()
        os.link(victim, path) if kind == "hard link" else path.symlink_to(victim)
        links.add(name)
    return links


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in sorted(folder.rglob("*"))
    }


def restore(path: Path, start: Path) -> None:
    """Put what was there in place of a link, as a user does who was told."""
    path.unlink()
    if start.is_dir():
        shutil.copytree(start, path)
    elif start.exists():
        shutil.copyfile(start, path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["file", "hard link", "folder", "dangling"])
@pytest.mark.parametrize("command", installed(COMMANDS))
def test_links_of_a_foreign_workdir_are_not_followed(
    command: str, kind: str, made: Path, cli: Cli
):
    here, name = cli.directory, "sweep" if command.startswith("sweep") else "run"
    run, start, outside = here / name, made / "start" / name, here / "outside"
    shutil.copytree(start, run)
    shutil.copytree(made / "other", here / "other")
    for file in ("recipe.py", "space.py", "image.png"):
        shutil.copy(made / file, here)
    with (run / "metrics.jsonl").open("a") as metrics:  # A line that is set aside.
        metrics.write('{"kind": "tra')
    outside.mkdir()
    links = attack(run, outside, names_in(made / name), kind)
    before = contents(outside)
    while True:
        result = cli(*command.split())
        assert contents(outside) == before
        if result.code == 0 or command.startswith("checkpoint"):
            break  # The latter only reads, and tells of all damaged files at once.
        named = {link for link in links if Path(link).name in result.stderr}
        assert result.code == 2 and named, (result.code, result.stderr, links)
        for link in named:
            restore(run / link, start / link)
        links -= named

"""Weights of the Hugging Face hub, or of its cache on this machine."""

import re
from pathlib import Path
from typing import Any

from jaxtrain import extras
from jaxtrain.errors import UserError

PREFIX = "hf:"
CONFIG = "config.json"


def fetch(reference: str, names: tuple[str, ...]) -> Path:
    """Return the folder with the config of a model and one file of its weights.

    What the cache has is not downloaded again; `HF_HUB_OFFLINE=1` asks the cache alone.

    Args:
      reference: `hf:OWNER/REPO`, or with a branch, tag or commit `hf:OWNER/REPO@REV`.
      names: of files of weights; the first that is there is taken.

    Raises:
      UserError: the extra is not installed, or the hub does not have it.
    """
    form = r"hf:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?"
    match = re.fullmatch(form, reference)
    if match is None:
        raise UserError(
            f"{reference}: expected hf:OWNER/REPO or hf:OWNER/REPO@REVISION"
        )
    if extras.missing("huggingface_hub"):
        raise UserError(f"{reference} needs the extra hub: {extras.install('hub')}")
    repo, revision = match.groups()
    config = _download(reference, repo, revision, (CONFIG,))
    # The commit, so that both files are of one.
    return _download(reference, repo, config.parent.name, names).parent


def _download(
    reference: str, repo: str, revision: str | None, names: tuple[str, ...]
) -> Path:
    """Return the place in the cache of the first of some files that is there."""
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError

    error: Any = None
    for name in names:
        try:
            return Path(huggingface_hub.hf_hub_download(repo, name, revision=revision))
        # Also if it cannot be asked, and the cache has it not.
        except EntryNotFoundError as missing:
            error = missing
        # Of names, rights, the network and the libraries that reach it: many kinds.
        except Exception as failed:
            error = failed
            break
    reason = str(error).strip().partition("\n")[0]
    raise UserError(
        f"{reference}: {' or '.join(names)} cannot be had ({type(error).__name__}: "
        f"{reason}): look at the name; without a network, or with HF_HUB_OFFLINE=1, "
        f"download it first where there is one (hf download {repo}), or give the "
        "folder with its files"
    )

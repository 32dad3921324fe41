"""Weights from the Hugging Face Hub, or from the local cache of the hub."""

import re
from pathlib import Path
from typing import Any

from jaxtrain import extras
from jaxtrain.errors import UserError

PREFIX = "hf:"
CONFIG = "config.json"


def fetch(reference: str, names: tuple[str, ...]) -> Path:
    """Download a model's config and weight file; return their directory.

    Cached files are not downloaded again. `HF_HUB_OFFLINE=1` uses only the cache.

    Args:
      reference: `hf:OWNER/REPO`, or `hf:OWNER/REPO@REV` with a branch, tag or commit.
      names: Names of weight files; the first that exists is downloaded.

    Raises:
      UserError: The extra `hub` is not installed, or the files cannot be downloaded.
    """
    form = r"hf:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?"
    match = re.fullmatch(form, reference)
    if match is None:
        raise UserError(
            f"{reference}: expected hf:OWNER/REPO or hf:OWNER/REPO@REVISION"
        )
    if extras.missing("huggingface_hub"):
        raise UserError(
            f"{reference} requires huggingface_hub, which is not installed: "
            f"{extras.install('hub')}"
        )
    repo, revision = match.groups()
    config = _download(reference, repo, revision, (CONFIG,))
    # Download the weights from the same commit as the config.
    return _download(reference, repo, config.parent.name, names).parent


def _download(
    reference: str, repo: str, revision: str | None, names: tuple[str, ...]
) -> Path:
    """Download the first of `names` that exists; return its path in the cache."""
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError

    error: Any = None
    for name in names:
        try:
            return Path(huggingface_hub.hf_hub_download(repo, name, revision=revision))
        # huggingface_hub also raises this error offline for a file that is not cached.
        except EntryNotFoundError as missing:
            error = missing
        # Error types differ by cause (name, permissions, network) and HTTP library.
        except Exception as failed:
            error = failed
            break
    reason = str(error).strip().partition("\n")[0]
    raise UserError(
        f"{reference}: {' or '.join(names)} cannot be downloaded "
        f"({type(error).__name__}: {reason}): check the name; without a network, or "
        "with HF_HUB_OFFLINE=1, download the repository elsewhere first (hf download "
        f"{repo}), or give the directory with its files"
    )

"""Packing of a data set into shards with fast random access.

The files of a shard are written under temporary names and renamed when complete; then a
JSON file (`Note`) is written, which marks the shard as complete. The index is built
from the notes of all shards; a directory without an index is not a packed data set.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxtrain import atomic_file, links
from jaxtrain.config import DataConfig
from jaxtrain.console import print_stderr
from jaxtrain.data import opening, sources
from jaxtrain.data.defects import Defects, Unreadable
from jaxtrain.data.input_kind import input_of
from jaxtrain.data.slices import NamedSplits, join
from jaxtrain.data.stores import remarks_of
from jaxtrain.data.target_transform import transform_of
from jaxtrain.errors import UserError
from jaxtrain.json_files.parse import parse
from jaxtrain.plugins.packed.convert import Form, make_form
from jaxtrain.plugins.packed.index import (
    INDEX,
    Index,
    LeftOut,
    Shard,
    read_index,
    tuples,
)
from jaxtrain.plugins.packed.shard import ShardWriter, note_path, read_note

PLAN = "plan.json"
# Number of image files per shard, about 300 MB of photographs.
FILES_A_SHARD = 4096
# Maximum bytes of image arrays per shard.
RAW_SHARD_BYTES = 2**28

# (split, position of the first example in the split, example indices) of a shard.
Part = tuple[str, int, np.ndarray]


def pack(
    config: DataConfig,
    out: Path,
    *,
    size: int | None = None,
    format: Literal["jpeg", "raw"] = "jpeg",
) -> Index:
    """Pack all splits of a source into a directory, or resume an interrupted packing.

    Args:
      config: Config with the source and the allowed fraction of unreadable images.
      out: Output directory, created if missing.
      size: Size of packed images in pixels (`Form.size`).
      format: Image files (`jpeg`) or arrays (`raw`).

    Raises:
      UserError: The source or directory is invalid, or too many images are unreadable.
    """
    store, splits = opening.open_store(config)
    if transform_of(store) is not None:
        raise UserError(
            f"--pack {config.source}: targets that refer to pixels, such as masks, "
            "cannot be packed, as packing resizes only images: train on the data set "
            "without packing"
        )
    kind = input_of(store.facts)
    if not kind.are_images:
        raise UserError(
            f"--pack {config.source}: only images can be packed, but the data set has "
            f"{kind.noun}s; train on the data set without packing"
        )
    for remark in remarks_of(store):
        print_stderr(f"{remark.title}: {remark.text}")
    examples = _examples(splits, config.source)
    shape = store.image_shape
    if format == "raw" and size is None:
        shape = sources.stored_shape(config, store, splits)
    form = make_form(store, format, size, config.max_pixels, shape)
    form = dataclasses.replace(form, white_level=config.white_level)
    facts = _facts(store.facts, config.source)
    parts = _cut(examples, form)
    plan = {
        "source": config.source,
        "include": config.include,
        **({"options": config.options} if config.options else {}),
        **({"white_level": config.white_level} if config.white_level else {}),
        # The digest covers the names, sizes and labels of the source's files.
        "digest": facts.get("digest"),
        "max_pixels": config.max_pixels,
        "format": format,
        "size": size,
        "splits": {split: len(indices) for split, indices in examples.items()},
        "shards": len(parts),
    }
    num_threads = len(os.sched_getaffinity(0))
    with _claim(out, plan) as packed, ThreadPoolExecutor(num_threads) as pool:
        if not packed:
            writer = ShardWriter(store, form, out, pool)
            defects = {
                split: Defects(split, num, config.max_bad_fraction)
                for split, num in plan["splits"].items()
            }
            shards, left_out = _write(writer, parts, defects)
            index = Index(
                plan=plan,
                image_shape=form.image_shape,
                facts=facts,
                columns=writer.columns(),
                splits=tuple(examples),
                shards=shards,
                left_out=left_out,
            )
            atomic_file.write(out / INDEX, index.to_json())
        for number in range(len(parts)):
            note_path(out, number).unlink(missing_ok=True)
        (out / PLAN).unlink(missing_ok=True)
    return read_index(out)


def _examples(splits: NamedSplits, source: str) -> dict[str, np.ndarray]:
    """Return the example indices of each split.

    Raises:
      UserError: There are no examples, or an example occurs twice.
    """
    examples = {name: join(shards) for name, shards in splits.items()}
    everything = join(examples.values())
    if not len(everything):
        raise UserError(
            f"--pack {source}: the data set has no examples; correct the path or the "
            "split"
        )
    if len(np.unique(everything)) < len(everything):
        raise UserError(
            f"--pack {source}: some examples are in several splits, or repeatedly in "
            "one split; remove the duplicates"
        )
    return examples


def _facts(facts: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Check that JSON can represent the metadata of a data set; return the metadata.

    Raises:
      UserError: JSON cannot represent a value.
    """
    try:
        if tuples(json.loads(json.dumps(dict(facts)))) == tuples(dict(facts)):
            return dict(facts)
        reason = "their values change"
    except (TypeError, ValueError) as error:
        reason = str(error)
    raise UserError(
        f"--pack {source}: the metadata of the data set cannot be written as JSON "
        f"({reason}); correct the metadata of the source"
    )


def _cut(examples: Mapping[str, np.ndarray], form: Form) -> list[Part]:
    """Divide the splits into shards."""
    step = FILES_A_SHARD
    if form.column is not None:
        step = max(1, RAW_SHARD_BYTES // form.column.row_bytes)
    return [
        (split, start, indices[start : start + step])
        for split, indices in examples.items()
        for start in range(0, len(indices), step)
    ]


@contextlib.contextmanager
def _claim(out: Path, plan: Mapping[str, Any]) -> Iterator[bool]:
    """Context manager: lock the output directory; yield whether packing is complete.

    The lock is on the file `PLAN`. A directory with an index is complete, and is not
    locked.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        if (out / INDEX).exists():
            _check_same(out, read_index(out).plan, plan)
            yield True
            return
        if os.listdir(out) and not (out / PLAN).exists():
            raise UserError(
                f"--out {out}: the directory contains other files; give a new or empty "
                "directory"
            )
        plan_file = links.open_in_place(
            out / PLAN, os.O_RDWR | os.O_APPEND | os.O_CREAT
        )
        with open(plan_file, "a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"--out {out}: another process is packing into this directory; "
                    "wait for the process to finish, or give another directory"
                ) from None
            atomic_file.remove_temporary(out)
            file.seek(0)
            if text := file.read():
                try:
                    old = dict(parse(text))
                except (ValueError, TypeError):
                    raise UserError(f"{out / PLAN} is damaged: remove {out}") from None
                _check_same(out, old, plan)
            else:
                file.write(json.dumps(plan))
                file.flush()
            yield (out / INDEX).exists()
    except OSError as error:
        raise UserError(
            f"--out {out}: {error.strerror}; fix the error, and run the same command "
            "again to resume"
        ) from error


def _check_same(out: Path, old: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    different = [
        f"{key}: {old.get(key)!r} -> {plan.get(key)!r}"
        for key in {**old, **plan}
        if old.get(key) != plan.get(key)
    ]
    if different:
        raise UserError(
            f"--out {out} contains other packed data ({', '.join(different)}): give "
            "another directory, or remove the old data"
        )


def _write(
    writer: ShardWriter, parts: list[Part], defects: Mapping[str, Defects]
) -> tuple[tuple[Shard, ...], dict[str, list[LeftOut]]]:
    """Write missing shards; return all shards and their unreadable images."""
    shards: list[Shard] = []
    left_out: dict[str, list[LeftOut]] = {}
    for number, (split, start, indices) in enumerate(parts):
        note = read_note(writer.folder, number)
        if note is None:
            note = writer.write(number, split, indices)
            print_stderr(f"shard {number + 1} of {len(parts)}: {len(indices)} images")
        bad = [(start + place, name, why) for place, name, why in note.left_out]
        defects[split].add([Unreadable(*one) for one in bad])
        if bad:
            left_out.setdefault(split, []).extend(bad)
        if note.shard.num_examples:
            shards.append(note.shard)
    return tuple(shards), left_out

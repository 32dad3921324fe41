"""The reader of PyTorch's files, on files that PyTorch wrote, and on bad ones."""

import io
import json
import os
import pickle
import resource
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrain.errors import UserError
from jaxtrain.models.weights import files, pickled
from tests.helpers.damage import read_weights
from tests.helpers.rows import each_row

# Written by tests/oracles/torch_files.py.
STORED = Path(__file__).parents[1] / "stored" / "torch"
VALUES = json.loads((STORED / "values.json").read_text())
FORMATS = ("", "_legacy")


@each_row("suffix", FORMATS)
@each_row("name", ["tensors", "state", "container"])
def test_arrays_are_those_that_pytorch_saved(name: str, suffix: str):
    found = files.read(STORED / f"{name}{suffix}.pth")
    expected = VALUES["tensors" if name == "tensors" else "state"]
    assert found.keys() == expected.keys()
    for key, array in found.items():
        assert array.dtype.name == expected[key]["dtype"], key
        values = np.array(expected[key]["values"], np.float64)
        np.testing.assert_array_equal(array, values.reshape(array.shape), err_msg=key)
        assert not array.flags.writeable


def test_arrays_are_views_of_the_file():
    found = files.read(STORED / "tensors.pth")
    assert np.shares_memory(found["whole"], found["every_third"])
    assert found["transposed"].base is not None
    assert not any(array.flags.owndata for array in found.values())


@each_row("suffix", FORMATS)
@each_row(
    ("name", "met"),
    [("system", "posix.system"), ("eval", "builtin__.eval"), ("nested", "posix.sys")],
)
def test_code_is_refused_by_its_name_and_not_run(
    name: str, met: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=met):
        files.read(STORED / f"{name}{suffix}.pth")
    assert not os.listdir(tmp_path)


class Code:
    """What would run when it is unpickled."""

    def __init__(self, *call: Any):
        self.call = call

    def __reduce__(self) -> Any:
        return self.call


def archive(path: Path, data: bytes, **files: bytes) -> Path:
    """Write a zip archive as `torch.save` does."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/data.pkl", data)
        for name, content in files.items():
            file.writestr(f"a/data/{name}", content)
    return path


DEEP = b"\x80\x02" + b"]" * 10**4 + b"\x85" * 10**4 + b"."
# A tuple of twice the one before it, whose hash takes 2^60 steps.
WIDE = b"\x80\x02)" + b"q\x00h\x00\x86" * 60
HOSTILE = {
    "deep": (DEEP, "no dict of tensors"),
    "deep tuple": (b"\x80\x02)" + b"\x85" * 10**4 + b".", "no dict of tensors"),
    "key": (b"\x80\x02}" + WIDE[2:] + b"K\x01s.", "a key of a dict is a tuple"),
    "opcode": (b"\x80\x02U", "instruction 0x55"),
    "kind": (b"\x80\x02(X\x07\0\0\0storage" + WIDE[2:] + b"X\0\0\0\0NK\1tQ.", "kind"),
    "memo": (b"\x80\x02Nr\xff\xff\xff\xffj\xfe\xff\xff\xff.", "what is not there"),
    "text": (b"\x80\x02X\xff\xff\xff\xffa.", "ends in the middle"),
    "long text": (b"\x80\x04\x8d" + b"\xff" * 8 + b".", "ends in the middle"),
    "integer": (b"\x80\x02\x8b\x12\0\0\0" + b"\1" * 18 + b".", "integer of"),
    "long integer": (b"\x80\x02\x8b\xff\xff\xff\x7f.", "ends in the middle"),
    "escaped": (b"\x80\x02c\\d\na\n.", r"it holds .*d\.a, which is neither"),
    "surrogate": (b"\x80\x02X\3\0\0\0\xed\xa0\x80.", "no UTF-8"),
    "frame": (b"\x80\x04\x95" + b"\xff" * 8 + b".", "takes what is not there"),
    "endless": (b"\x80\x02" + b"N0" * 2**13, "more than"),
    "mark": (b"\x80\x02(.", "takes what is not there"),
    "called": (b"\x80\x02N)R.", "it calls none"),
    "pairs": (
        b"\x80\x02ccollections\nOrderedDict\n" + WIDE[2:] + b"K\x01\x86\x85\x85R.",
        "with other arguments",
    ),
    "times": (b"\x80\x02ctorch\nSize\n)R.", "with other arguments"),
}


@each_row("name", HOSTILE)
def test_tricks_of_pickles_end_at_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if name == "endless":
        monkeypatch.setattr(pickled, "MAX_INSTRUCTIONS", 2**13)
    data, message = HOSTILE[name]
    with pytest.raises(UserError, match=message):
        files.read(archive(tmp_path / "f.pth", data))


@each_row("protocol", [2, 4, 5])
@each_row(
    "call",
    [(os.system, ("touch ran",)), (eval, ("1/0",)), (getattr, ({}, "clear"))],
)
def test_no_protocol_runs_code(call: Any, protocol: int, tmp_path: Path):
    for value in (Code(*call), {"a": [Code(*call)]}, {"b": {"c": (Code(*call),)}}):
        data = pickle.dumps(value, protocol)
        with pytest.raises(UserError, match=f"{call[0].__name__}, which is neither"):
            files.read(archive(tmp_path / "f.pth", data))


def tensor(shape: str, strides: str, offset: bytes = b"K\0") -> bytes:
    """Return the pickle of {'a': a tensor of a storage of four float32}."""
    return (
        b"\x80\x02}X\1\0\0\0actorch._utils\n_rebuild_tensor_v2\n("
        b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" + b"0"
        b"X\3\0\0\0cpuK\4tQ"
        + offset
        + shape.encode("latin1")
        + strides.encode("latin1")
        + b"\x89}tRs."
    )


BOUNDS = {
    "one more": ("K\5\x85", "K\1\x85", b"K\0"),
    "far": ("K\1\x85", "K\1\x85", b"K\4"),
    "negative": ("K\4\x85", "J\xff\xff\xff\xff\x85", b"K\3"),
    "before": ("K\1\x85", "K\1\x85", b"J\xff\xff\xff\xff"),
    "repeated": ("J\0\0\0\x40\x85", "K\0\x85", b"K\0"),
    "wide": ("K\2\x85", "J\xff\xff\xff\x7f\x85", b"K\0"),
    "true": ("\x88\x85", "K\1\x85", b"K\0"),
    "dims": ("(" + 9 * "K\1" + "t", "(" + 9 * "K\1" + "t", b"K\0"),
    "unlike": ("K\1\x85", ")", b"K\0"),
}


@each_row("name", BOUNDS)
def test_a_tensor_lies_within_its_storage(name: str, tmp_path: Path):
    values = np.arange(4, dtype=np.float32)
    good = archive(
        tmp_path / "g.pth", tensor("K\4\x85", "K\1\x85"), **{"0": values.tobytes()}
    )
    np.testing.assert_array_equal(files.read(good)["a"], values)
    bad = archive(tmp_path / "f.pth", tensor(*BOUNDS[name]), **{"0": bytes(16)})
    with pytest.raises(UserError, match="tensor"):
        files.read(bad)


def test_a_storage_is_what_the_file_has(tmp_path: Path):
    good = tensor("K\4\x85", "K\1\x85")
    for content in (bytes(12), bytes(20), b""):
        with pytest.raises(UserError, match="have another size than it says"):
            files.read(archive(tmp_path / "f.pth", good, **{"0": content}))
    with pytest.raises(UserError, match="there is no storage 0"):
        files.read(archive(tmp_path / "f.pth", good))
    with zipfile.ZipFile(tmp_path / "f.pth", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/data.pkl", good)
    with pytest.raises(UserError, match="compressed"):
        files.read(tmp_path / "f.pth")


def test_other_files_are_refused(tmp_path: Path):
    for content in (b"", b"PK", b"\x80\x02.", b"\x80\x02]q\0.", os.urandom(99)):
        (tmp_path / "f.pth").write_bytes(content)
        with pytest.raises(UserError, match="no whole file of torch"):
            files.read(tmp_path / "f.pth")
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError, match=str(path)):
            files.read(path)


FILES = [path.read_bytes() for path in sorted(STORED.glob("*.pth"))]
CHANGES = st.lists(
    st.tuples(st.integers(0, 2**20), st.binary(min_size=1, max_size=8)), max_size=4
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Return a file with some bytes replaced, a part doubled, or its end cut off."""
    content = bytearray(draw(st.sampled_from(FILES)))
    for place, new in draw(CHANGES):
        place %= len(content)
        content[place : place + draw(st.integers(0, 8))] = new
    if draw(st.booleans()):
        del content[draw(st.integers(0, len(content))) :]
    return bytes(content)


@st.composite
def repickled(draw: st.DrawFn) -> bytes:
    """Return an archive whose pickle is damaged, and whose checksums are right."""
    with zipfile.ZipFile(STORED / "tensors.pth") as old:
        files = {name: old.read(name) for name in old.namelist()}
    data = bytearray(files["tensors/data.pkl"])
    for place, new in draw(CHANGES):
        place %= len(data)
        data[place : place + draw(st.integers(0, 8))] = new
    files["tensors/data.pkl"] = bytes(data)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
    return buffer.getvalue()


ANY = st.one_of(damaged(), repickled())


@settings(max_examples=120, deadline=None)
@given(content=ANY)
def test_damaged_files_are_read_or_refused(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
):
    read_weights(tmp_path_factory.getbasetemp() / "damaged.pth", content)


@pytest.mark.slow
def test_many_damaged_files_are_read_or_refused(tmp_path: Path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    @settings(max_examples=3000, deadline=None, database=None)
    @given(content=ANY)
    def check(content: bytes) -> None:
        read_weights(tmp_path / "damaged.pth", content)

    check()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 2**18, "KiB: some file made it take memory"


def test_the_first_bytes_of_every_file_are_refused(tmp_path: Path):
    for content in FILES:
        for end in range(0, len(content), 97):
            read_weights(tmp_path / "cut.pth", content[:end])


def test_a_directory_that_overlaps_is_refused(tmp_path: Path):
    path = archive(tmp_path / "f.pth", tensor("K\4\x85", "K\1\x85"), **{"0": bytes(16)})
    content = bytearray(path.read_bytes())
    at = content.rfind(b"PK\x01\x02")
    content[at + 20 : at + 28] = struct.pack("<II", 2**30, 2**30)
    path.write_bytes(content)
    with pytest.raises(UserError, match="overlap"):
        files.read(path)

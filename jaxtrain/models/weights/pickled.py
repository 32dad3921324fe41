"""The part of Python's pickle that `torch.save` writes state dicts in.

A pickle is a program that builds objects. Here it is interpreted by a table of its own:
numbers, texts, tuples, lists, dicts, and what a caller lets it call by name. Nothing
else has a name, so that nothing else can be run. Python's own unpickler, restricted in
`find_class`, would still take memory as a file asks for, and crash on deep nesting.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

# Instructions that are carried out at most: a state dict of 10,000 tensors has 400,000.
MAX_INSTRUCTIONS = 2**22
# Bytes of an integer: those of a mark of old files are ten.
MAX_INT_BYTES = 16
# Letters of a name, or of a value in a message.
MAX_SHOWN = 80

PROTO, FRAME, STOP = 0x80, 0x95, ord(".")
_MARK = object()


class PickleError(ValueError):
    """It is no pickle, or holds something that has no place in weights."""


class Name(NamedTuple):
    """A class or function by its name, which is all that is known of it."""

    module: str
    name: str

    def __str__(self) -> str:
        return shown(f"{self.module}.{self.name}")


# Of each name that may be called: (arguments) -> value.
Calls = Mapping[Name, Callable[..., Any]]


def shown(text: str) -> str:
    """Return a text of a file as a message can have it: short, on one line."""
    text = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."
    return repr(text)[1:-1]


class Pickle:
    """One pickle of some bytes, which others may follow.

    Args:
      data: Bytes that hold it.
      start: Offset of the pickle.
      calls: Functions that it may call, by name.
      values: Names that it may hold, but not call.
      persistent: Resolves a reference to something outside of the pickle.
    """

    def __init__(
        self,
        data: bytes,
        start: int = 0,
        *,
        calls: Calls | None = None,
        values: frozenset[Name] = frozenset(),
        persistent: Callable[[Any], Any] | None = None,
    ):
        self._data, self.end = data, start
        self._calls, self._values = calls or {}, values
        self._persistent = persistent
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def load(self) -> Any:
        """Return the value; `end` is then where the pickle ends.

        Raises:
          PickleError: it is damaged, or holds what is not allowed.
        """
        for _ in range(MAX_INSTRUCTIONS):
            code = self._take(1)[0]
            if code == STOP:
                return self._pop()
            instruction = _INSTRUCTIONS.get(code)
            if instruction is None:
                raise PickleError(f"it has the instruction {code:#x}, of no weights")
            instruction(self)
        raise PickleError(f"it has more than {MAX_INSTRUCTIONS:,} instructions")

    # What the file gives.

    def _take(self, size: int) -> bytes:
        if size > len(self._data) - self.end:
            raise PickleError("it ends in the middle")
        start, self.end = self.end, self.end + size
        return self._data[start : self.end]

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _line(self) -> str:
        end = self._data.find(b"\n", self.end)
        if end < 0:
            raise PickleError("it ends in the middle")
        line = _text(self._take(end - self.end))
        self.end += 1
        return line

    # What lies on the stack.

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise PickleError("it takes what is not there")
        return self._stack.pop()

    def _top(self, kind: type | tuple[type, ...]) -> Any:
        if not self._stack or not isinstance(self._stack[-1], kind):
            raise PickleError("it adds to what is not there")
        return self._stack[-1]

    def _pop_to_mark(self) -> list[Any]:
        for i in range(len(self._stack) - 1, -1, -1):
            if self._stack[i] is _MARK:
                found = self._stack[i + 1 :]
                del self._stack[i:]
                return found
        raise PickleError("it takes what is not there")

    # What the instructions do.

    def _int(self, size: int) -> None:
        if size > MAX_INT_BYTES:
            raise PickleError(f"it has an integer of {size:,} bytes")
        self._push(int.from_bytes(self._take(size), "little", signed=True))

    def _tuple(self, size: int) -> None:
        items = [self._pop() for _ in range(size)]
        self._push(tuple(reversed(items)))

    def _get(self, index: int) -> None:
        if index not in self._memo:
            raise PickleError("it takes what is not there")
        self._push(self._memo[index])

    def _put(self, index: int) -> None:
        value = self._pop()
        self._memo[index] = value
        self._push(value)

    def _extend(self, items: list[Any]) -> None:
        self._top(list).extend(items)

    def _set(self, items: list[Any]) -> None:
        found = self._top(dict)
        if len(items) % 2:
            raise PickleError("a key of a dict has no value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Of other kinds, nested ones among them, a hash may take forever.
            if not isinstance(key, str | int):
                raise PickleError(f"a key of a dict is a {type(key).__name__}")
            found[key] = value

    def _set_one(self) -> None:
        value, key = self._pop(), self._pop()
        self._set([key, value])

    def _global(self, module: Any, name: Any) -> None:
        if not (isinstance(module, str) and isinstance(name, str)):
            raise PickleError("a name is no text")
        found = Name(module, name)
        if found not in self._calls and found not in self._values:
            raise PickleError(
                f"it holds {found}, which is neither a tensor nor a dict or a list of "
                "them: nothing else is read, and nothing in it is run"
            )
        self._push(found)

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        self._global(module, name)

    def _reduce(self) -> None:
        arguments, name = self._pop(), self._pop()
        if not isinstance(name, Name) or name not in self._calls:
            raise PickleError(f"it calls {name if isinstance(name, Name) else 'none'}")
        if not isinstance(arguments, tuple):
            raise PickleError(f"it calls {name} without arguments")
        try:
            self._push(self._calls[name](*arguments))
        except TypeError:
            raise PickleError(f"it calls {name} with other arguments") from None

    def _build(self) -> None:
        # Attributes of an ordered dict, such as the versions of its layers.
        self._pop()
        self._top(dict)

    def _outside(self) -> None:
        reference = self._pop()
        if self._persistent is None:
            raise PickleError("it refers to something outside of it")
        self._push(self._persistent(reference))


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise PickleError("a text is no UTF-8") from None


# By https://docs.python.org/3/library/pickletools.html, protocols 2 to 5.
_INSTRUCTIONS: dict[int, Callable[[Pickle], Any]] = {
    PROTO: lambda p: p._take(1),
    FRAME: lambda p: p._take(8),
    ord("("): lambda p: p._push(_MARK),
    ord("0"): lambda p: p._pop(),
    ord("1"): lambda p: p._pop_to_mark(),
    ord("N"): lambda p: p._push(None),
    0x88: lambda p: p._push(True),
    0x89: lambda p: p._push(False),
    ord("K"): lambda p: p._push(p._number("<B")),
    ord("M"): lambda p: p._push(p._number("<H")),
    ord("J"): lambda p: p._push(p._number("<i")),
    0x8A: lambda p: p._int(p._number("<B")),
    0x8B: lambda p: p._int(p._number("<I")),
    ord("G"): lambda p: p._push(p._number(">d")),
    ord("X"): lambda p: p._push(_text(p._take(p._number("<I")))),
    0x8C: lambda p: p._push(_text(p._take(p._number("<B")))),
    0x8D: lambda p: p._push(_text(p._take(p._number("<Q")))),
    ord(")"): lambda p: p._push(()),
    ord("t"): lambda p: p._push(tuple(p._pop_to_mark())),
    0x85: lambda p: p._tuple(1),
    0x86: lambda p: p._tuple(2),
    0x87: lambda p: p._tuple(3),
    ord("]"): lambda p: p._push([]),
    ord("l"): lambda p: p._push(p._pop_to_mark()),
    ord("a"): lambda p: p._extend([p._pop()]),
    ord("e"): lambda p: p._extend(p._pop_to_mark()),
    ord("}"): lambda p: p._push({}),
    ord("s"): lambda p: p._set_one(),
    ord("u"): lambda p: p._set(p._pop_to_mark()),
    ord("h"): lambda p: p._get(p._number("<B")),
    ord("j"): lambda p: p._get(p._number("<I")),
    ord("q"): lambda p: p._put(p._number("<B")),
    ord("r"): lambda p: p._put(p._number("<I")),
    0x94: lambda p: p._put(len(p._memo)),
    ord("c"): lambda p: p._global(p._line(), p._line()),
    0x93: lambda p: p._stack_global(),
    ord("R"): lambda p: p._reduce(),
    # A class that is called, as by `cls.__new__`.
    0x81: lambda p: p._reduce(),
    ord("b"): lambda p: p._build(),
    ord("Q"): lambda p: p._outside(),
}

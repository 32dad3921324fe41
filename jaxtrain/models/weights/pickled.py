"""The part of Python's pickle that `torch.save` writes state dicts in.

A pickle is a program that builds objects. Here a table carries out its instructions,
whose arguments `pickletools` reads: numbers, texts, tuples, lists, dicts, and what a
caller lets it call by name. Nothing else has a name, so that nothing else can be run.
Python's own unpickler, restricted in `find_class`, would still take memory as a file
asks for, and crash on deep nesting.
"""

import pickletools
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NamedTuple

# Instructions that are carried out at most: a state dict of 10,000 tensors has 400,000.
MAX_INSTRUCTIONS = 2**22
# Bytes of an integer: those of a mark of old files are ten.
MAX_INT_BYTES = 16
# Letters of a name, or of a value in a message.
MAX_SHOWN = 80

_END, _NO_TEXT = "ends in the middle", "a text is no UTF-8"


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
    """One pickle of a file in memory, which others may follow.

    Args:
      stream: File whose position is the start of the pickle.
      calls: Functions that it may call, by name.
      values: Names that it may hold, but not call.
      persistent: Resolves a reference to something outside of the pickle.
    """

    def __init__(
        self,
        stream: BinaryIO,
        *,
        calls: Calls | None = None,
        values: frozenset[Name] = frozenset(),
        persistent: Callable[[Any], Any] | None = None,
    ):
        self._stream = stream
        self._calls, self._values = calls or {}, values
        self._persistent = persistent
        # What lies above the last mark, and above each mark below it.
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def load(self) -> Any:
        """Return the value; the position of the file is then the end of the pickle.

        Raises:
          PickleError: it is damaged, or holds what is not allowed.
        """
        for _ in range(MAX_INSTRUCTIONS):
            byte = self._stream.read(1)
            code = _CODES.get(byte)
            if code is None:
                what = (
                    f"has the instruction {byte[0]:#x}, of no weights" if byte else _END
                )
                raise PickleError(f"it {what}")
            argument = self._argument(code)
            try:
                if code.name == "STOP":
                    return self._stack.pop()
                _INSTRUCTIONS[code.name](self, argument)
            except (IndexError, KeyError):  # Of the stack, or of the memo.
                raise PickleError("it takes what is not there") from None
        raise PickleError(f"it has more than {MAX_INSTRUCTIONS:,} instructions")

    def _argument(self, code: pickletools.OpcodeInfo) -> Any:
        # That of GLOBAL `pickletools` would take for a string literal.
        if code.arg is None or code.name == "GLOBAL":
            return None
        try:
            return code.arg.reader(self._stream)
        except UnicodeError:
            raise PickleError(_NO_TEXT) from None
        except ValueError:
            raise PickleError(f"it {_END}") from None

    def _line(self) -> str:
        line = self._stream.readline()
        if not line.endswith(b"\n"):
            raise PickleError(f"it {_END}")
        try:
            return line[:-1].decode()
        except UnicodeError:
            raise PickleError(_NO_TEXT) from None

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _take(self, num: int) -> list[Any]:
        return [self._stack.pop() for _ in range(num)][::-1]

    def _top(self, kind: type) -> Any:
        if not self._stack or not isinstance(self._stack[-1], kind):
            raise PickleError("it adds to what is not there")
        return self._stack[-1]

    def _mark(self) -> None:
        self._below.append(self._stack)
        self._stack = []

    def _take_to_mark(self) -> list[Any]:
        above, self._stack = self._stack, self._below.pop()
        return above

    def _put(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    def _int(self, value: int) -> None:
        if value.bit_length() > 8 * MAX_INT_BYTES:
            raise PickleError(f"it has an integer of {value.bit_length():,} bits")
        self._push(value)

    def _text(self, value: str) -> None:
        try:
            value.encode()
        except UnicodeError:  # Of half a surrogate pair.
            raise PickleError(_NO_TEXT) from None
        self._push(value)

    def _set(self, items: list[Any]) -> None:
        found = self._top(dict)
        if len(items) % 2:
            raise PickleError("a key of a dict has no value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Of other kinds, nested ones among them, a hash may take forever.
            if not isinstance(key, str | int):
                raise PickleError(f"a key of a dict is a {type(key).__name__}")
            found[key] = value

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

    def _reduce(self) -> None:
        name, arguments = self._take(2)
        if not isinstance(name, Name) or name not in self._calls:
            raise PickleError(f"it calls {name if isinstance(name, Name) else 'none'}")
        if not isinstance(arguments, tuple):
            raise PickleError(f"it calls {name} without arguments")
        try:
            self._push(self._calls[name](*arguments))
        except TypeError:
            raise PickleError(f"it calls {name} with other arguments") from None

    def _outside(self) -> None:
        (reference,) = self._take(1)
        if self._persistent is None:
            raise PickleError("it refers to something outside of it")
        self._push(self._persistent(reference))


# By https://docs.python.org/3/library/pickletools.html, protocols 2 to 5: of each
# instruction what it does, with its argument.
_INSTRUCTIONS: dict[str, Callable[[Pickle, Any], Any]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda *_: None),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "BINFLOAT"), Pickle._push),
    **dict.fromkeys(("LONG1", "LONG4"), Pickle._int),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), Pickle._text),
    "MARK": lambda p, _: p._mark(),
    "POP": lambda p, _: p._stack.pop(),
    "POP_MARK": lambda p, _: p._take_to_mark(),
    "NONE": lambda p, _: p._push(None),
    "NEWTRUE": lambda p, _: p._push(True),
    "NEWFALSE": lambda p, _: p._push(False),
    "EMPTY_TUPLE": lambda p, _: p._push(()),
    "TUPLE": lambda p, _: p._push(tuple(p._take_to_mark())),
    "TUPLE1": lambda p, _: p._push(tuple(p._take(1))),
    "TUPLE2": lambda p, _: p._push(tuple(p._take(2))),
    "TUPLE3": lambda p, _: p._push(tuple(p._take(3))),
    "EMPTY_LIST": lambda p, _: p._push([]),
    "LIST": lambda p, _: p._push(p._take_to_mark()),
    "APPEND": lambda p, _: (values := p._take(1), p._top(list).extend(values)),
    "APPENDS": lambda p, _: (values := p._take_to_mark(), p._top(list).extend(values)),
    "EMPTY_DICT": lambda p, _: p._push({}),
    "SETITEM": lambda p, _: p._set(p._take(2)),
    "SETITEMS": lambda p, _: p._set(p._take_to_mark()),
    **dict.fromkeys(
        ("BINGET", "LONG_BINGET"), lambda p, index: p._push(p._memo[index])
    ),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), Pickle._put),
    "MEMOIZE": lambda p, _: p._put(len(p._memo)),
    "GLOBAL": lambda p, _: p._global(p._line(), p._line()),
    "STACK_GLOBAL": lambda p, _: p._global(*p._take(2)),
    "REDUCE": lambda p, _: p._reduce(),
    # A class that is called, as by `cls.__new__`.
    "NEWOBJ": lambda p, _: p._reduce(),
    # Attributes of an ordered dict, such as the versions of its layers.
    "BUILD": lambda p, _: (p._stack.pop(), p._top(dict)),
    "BINPERSID": lambda p, _: p._outside(),
}
_CODES = {
    code.code.encode("latin1"): code
    for code in pickletools.opcodes
    if code.name in _INSTRUCTIONS
}

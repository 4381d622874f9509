"""Pickles that hold data alone: containers, numbers and texts. Nothing else is read, so that none runs code.

Each opcode is looked at before anything is built: those that name a class, call something or refer to what lies outside
of the file are refused, whatever they name.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, NoReturn

from advisor.errors import InputError
from advisor.places.place import Place

# Opcodes of plain data (pickletools.opcodes describes each), and how the file is framed.
_PLAIN = """
    PROTO FRAME STOP MARK POP POP_MARK DUP MEMOIZE PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET
    NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT
    STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES
    EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT DICT SETITEM SETITEMS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3
"""
_MEMO = ("PUT", "BINPUT", "LONG_BINPUT")
# A history of a million entries takes some hundred MB.
LARGEST_BYTES = 2 << 30
# What damaged or hostile bytes make the reader raise.
_DAMAGES = (
    *(pickle.UnpicklingError, EOFError, ValueError, TypeError, IndexError, KeyError, AttributeError),
    *(OverflowError, RecursionError, MemoryError),
)


class _DataOnly(pickle.Unpickler):
    """Refuses what the look at the opcodes would have missed."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any, /) -> NoReturn:
        raise pickle.UnpicklingError("it refers to data outside the file")


def load(path: Place) -> Any:
    """What a pickle holds. Raises InputError, one line, for one that holds more than plain data, or is damaged."""
    try:
        size = path.stat().st_size
        if size > LARGEST_BYTES:
            raise InputError(f"{path}: {size >> 20:,} MB, above the limit; record fewer entries (max_entries)")
        data = path.read_bytes()
    except OSError as failure:
        raise InputError(
            f"{path}: cannot be read ({failure.strerror}); check the path and its permissions"
        ) from failure
    try:
        refused = _refused(data)
        if not refused:
            return _DataOnly(io.BytesIO(data)).load()
    except _DAMAGES as failure:
        words = (str(failure) or type(failure).__name__).splitlines()[0]
        raise InputError(f"{path}: not a readable pickle ({words}); record it again") from failure
    raise InputError(f"{path}: a pickle that {refused}, unlike any snapshot; not opened, because that could run code")


def _refused(data: bytes) -> str:
    """Why a pickle is not opened; empty for one of plain data."""
    plain, memos = frozenset(_PLAIN.split()), 0
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name not in plain:
            return f"holds more than data (opcode {opcode.name})"
        if opcode.name in _MEMO:
            memos += 1
            # Writers number these one after the other; a table of the largest number is made when it is read.
            if not isinstance(argument, int) or not 0 <= argument <= memos:
                return "has invalid memo numbers"
    return ""

"""Pictures that are decoded while samples are read: how large they are, how long it takes, what becomes of them.

Pillow reads and sets attributes as it decodes (`decoderconfig`, then `tile`) and as it makes a picture from another
(`_size`), so that no frame of ours is on the stack. Each process, be it the loop's own or a forked worker, looks at its
first pictures only, and writes what it saw into a slot of a small map that all of them share.
"""

from __future__ import annotations

import json
import mmap
import struct
import sys
from _thread import get_ident
from time import perf_counter_ns
from types import FrameType
from typing import Any

from ...guards import hooks
from ...guards.interrupts import let_through
from ...guards.user_code import file_of, foreign_folders
from .decoded import Decoded, Kind, Spender, as_record

# Pictures that a process looks at, each for a few µs, and fetches after which it gives up where there are none.
_MOST_PICTURES, _MOST_FETCHES = 64, 256
# Kinds of pictures (format and line): an image and its mask, left and right of a pair.
_MOST_KINDS = 4
# 64 slots, as workers have; touched only where used. 64 pictures and 4 places take 3 KB at most.
_SLOTS, _SLOT_BYTES = 64, 8192
_HEAD = struct.Struct("=Q")
# Functions of Pillow that make a picture smaller.
_SMALLER = ("resize", "reduce")
Place = tuple[str, int, str]  # file, line, function
_NOWHERE = ("", 0, "")
# Transforms of torchvision that only call others.
_CONTAINERS = ("Compose", "RandomApply", "RandomChoice", "RandomOrder")


class Pictures:
    """What one process has seen, by (format, file, line, function)."""

    def __init__(self) -> None:
        self.memory: Any = None
        self.foreign: tuple[str, ...] = ()
        self.placed: list[hooks.Undo] = []
        self.begin_process(0)

    def begin_process(self, slot: int) -> None:
        """Begins with nothing: a forked worker has a slot of its own, and listens where its parent did."""
        self.slot = slot
        self.kinds: dict[tuple[str, str, int, str], Kind] = {}
        self.seen = self.fetches = 0
        self.fetch_us = 0.0  # of the fetches in which pictures were decoded
        self.thread = 0  # that reads samples now
        self.open: tuple[int, Any] | None = None  # a picture that is being decoded, since when
        self.since_ns = 0  # when the last picture was there, or a function that makes one smaller was called
        self.decoded = False
        self.over = False

    def prepare(self) -> None:
        """Makes the shared map before workers are forked."""
        if self.memory is None:
            self.memory = mmap.mmap(-1, _SLOTS * _SLOT_BYTES)
            self.foreign = foreign_folders()

    def fetch_begins(self) -> None:
        """The samples of a batch are about to be read on this thread."""
        if self.over or self.memory is None:
            return
        self.thread, self.open, self.decoded = get_ident(), None, False
        if not self.placed and "PIL.ImageFile" in sys.modules:
            self._listen()

    def fetch_ends(self, samples_us: float) -> None:
        """They are there. The looks at pictures end with a whole batch, so that its time belongs to them all."""
        if self.over or self.memory is None:
            return
        self.thread, self.fetches = 0, self.fetches + 1
        if self.decoded:
            self.fetch_us += samples_us
            self._write()
        if self.seen >= _MOST_PICTURES or self.fetches >= _MOST_FETCHES:
            self.leave()

    def leave(self) -> None:
        """Looks no more."""
        self.over = True
        placed, self.placed = self.placed, []
        for undo in placed:
            undo()

    def _listen(self) -> None:
        decoded: Any = sys.modules["PIL.ImageFile"].ImageFile
        made: Any = sys.modules["PIL.Image"].Image
        self.placed = [
            hooks.place(decoded, "decoderconfig", hooks.Attribute("decoderconfig", on_get=self._begins)),
            hooks.place(decoded, "tile", hooks.Attribute("tile", on_set=self._ends)),
            hooks.place(made, "_size", hooks.Attribute("_size", self._asked, self._made)),
        ]

    def _begins(self, picture: Any, _value: Any) -> None:
        """Its pixels are about to be decoded; of several tiles the first."""
        if self.thread == get_ident() and (self.open is None or self.open[1] is not picture):
            self.open = perf_counter_ns(), picture

    def _ends(self, picture: Any, tiles: Any) -> None:
        """Nothing of it is left to be decoded."""
        if self.open is None or tiles or self.open[1] is not picture:
            return
        (began_ns, _), self.open = self.open, None
        try:
            self._add(picture, (perf_counter_ns() - began_ns) / 1e3)
        except Exception as failure:
            let_through(failure)  # the script's sample must not end because of a look at it
        self.since_ns = perf_counter_ns()

    def _add(self, picture: Any, us: float) -> None:
        self.decoded, self.seen = True, self.seen + 1
        innermost, asked = self._places(sys._getframe(3))
        kind = (str(picture.format), *innermost)
        if kind in self.kinds or len(self.kinds) < _MOST_KINDS:
            found = self.kinds.setdefault(kind, Kind(asked))
            found.decode_us += us
            if len(found.pictures) < _MOST_PICTURES // _MOST_KINDS or self.seen <= _MOST_PICTURES // 2:
                found.pictures.append(Decoded(picture.size, picture.fp.tell(), us, found))
                found.pictures[-1].tag(picture)

    def _places(self, frame: FrameType | None) -> tuple[Place, Place]:
        """The user's innermost and outermost lines below the fetcher; nothing where a library reads the samples."""
        found: list[Place] = []
        while frame is not None and not _is_fetcher(frame):
            file = file_of(frame.f_code, self.foreign)
            if file:
                found = [*found[:1], (file, frame.f_lineno, frame.f_code.co_name)]
            frame = frame.f_back
        return (found[0], found[-1]) if found else (_NOWHERE, _NOWHERE)

    def _asked(self, _picture: Any, _size: Any) -> None:
        """A picture's size is read: the last thing that Pillow does before it resizes, but for decoding."""
        if self.thread == get_ident() and sys._getframe(3).f_code.co_name in _SMALLER:
            self.since_ns = perf_counter_ns()

    def _made(self, picture: Any, size: Any) -> None:
        """A picture gets its size: what Pillow makes from another is followed."""
        if self.thread != get_ident():
            return
        try:
            made = sys._getframe(2)
            if made.f_code.co_name == "_new":
                self._follow(picture, size, made, (perf_counter_ns() - self.since_ns) / 1e3)
        except Exception as failure:
            let_through(failure)

    def _follow(self, picture: Any, size: Any, made: FrameType, took_us: float) -> None:
        by: Any = made.f_back
        source = Decoded.of(made, by)
        if source is None:
            return
        source.tag(picture)
        if source.made(size, by, took_us):
            source.kind.spends(self._spender(by), took_us)
        self.since_ns = perf_counter_ns()

    def _spender(self, frame: FrameType | None) -> Spender:
        """Who asked for this: the user's innermost line, and the transform of torchvision that it called."""
        kind = ""
        while frame is not None and not _is_fetcher(frame):
            file = file_of(frame.f_code, self.foreign)
            if file:
                return file, frame.f_lineno, frame.f_code.co_name, kind
            if frame.f_globals.get("__name__", "").startswith("torchvision.transforms"):
                called = type(frame.f_locals.get("self")).__name__
                kind = kind if called in ("NoneType", *_CONTAINERS) else called
            frame = frame.f_back
        return "", 0, "", kind

    def _write(self) -> None:
        text = json.dumps([self.fetch_us, [[*kind, *of.seen] for kind, of in self.kinds.items()]]).encode()
        if len(text) <= _SLOT_BYTES - _HEAD.size:
            base = self.slot * _SLOT_BYTES
            self.memory[base + _HEAD.size : base + _HEAD.size + len(text)] = text
            _HEAD.pack_into(self.memory, base, len(text))

    def record(self) -> list[dict[str, Any]]:
        """All kinds of pictures that were decoded, with the keys of `record.Pictures`."""
        found: dict[tuple[str, str, int, str], list[Any]] = {}
        fetch_us = 0.0
        for took_us, kinds in self._read():
            fetch_us += took_us
            for form, file, line, function, decode_us, *lists in kinds:
                of_kind = found.setdefault((form, file, line, function), [0.0, [], [], lists[2]])
                of_kind[0] += decode_us
                of_kind[1].extend(lists[0])
                of_kind[2].extend(lists[1])
        return [_of_kind(kind, seen, fetch_us) for kind, seen in found.items() if seen[1] and fetch_us]

    def _read(self) -> list[Any]:
        """What each process has written; a worker may be writing just now, and is left out then."""
        found = []
        for base in range(0, _SLOTS * _SLOT_BYTES, _SLOT_BYTES) if self.memory is not None else ():
            (length,) = _HEAD.unpack_from(self.memory, base)
            try:
                found += [json.loads(self.memory[base + _HEAD.size : base + _HEAD.size + length])] if length else []
            except ValueError:
                continue
        return found


def _is_fetcher(frame: FrameType) -> bool:
    return frame.f_code.co_name == "fetch" and frame.f_globals.get("__name__") == "torch.utils.data._utils.fetch"


def _of_kind(kind: tuple[str, str, int, str], seen: list[Any], fetch_us: float) -> dict[str, Any]:
    form, file, line, function = kind
    place = {"place": {"file": file, "line": line, "function": function}} if file else {}
    return {"format": form, **place, **as_record(seen, fetch_us)}

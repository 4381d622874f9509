"""What becomes of one decoded picture: how small it is made, how long that takes, and what is done to it before."""

from __future__ import annotations

from time import perf_counter_ns
from types import FrameType
from typing import Any

# What a picture and all that is made from it carry: what was seen of it.
_TAG = "_advisor"
# A picture of nearly as many pixels is no smaller one: a rotation leaves off its margins.
_AS_LARGE = 0.9
# Functions of Pillow that make a picture from several, and the names of these.
_OF_SEVERAL = {"blend": ("im2",), "alpha_composite": ("im2",), "merge": ("bands",)}
# width, height, bytes of the file, how many times smaller it is made (0: never), µs to decode it, to make it smaller,
# and in ops on all of its pixels before that; share of the pixels that is left; bytes of what the whole of it is made
# smaller to, 0 where that is a part of it, and µs until that is there, from the decoding on
Numbers = list[float]
_TIMES = 3
# Functions of Pillow that a picture goes through before anything can be done to it.
_TAKES_OVER = ("convert", "copy")
# Who asked for work on large pictures: file, line and function of the user's innermost line, and the class of
# torchvision's transform that it called.
Spender = tuple[str, int, str, str]
# As many of them are kept for each kind of pictures.
_MOST_SPENDERS = 16


class Kind:
    """Pictures of one format that are decoded at one line.

    decode_us  to decode all of them;  spent: µs of work on all pixels of them before they are made smaller, by who
               asked for it;  asked: the user's outermost line below the fetcher, file, line and function
    """

    def __init__(self, asked: tuple[str, int, str]) -> None:
        self.asked = asked
        self.pictures: list[Decoded] = []
        self.decode_us = 0.0
        self.spent: dict[Spender, float] = {}

    def spends(self, spender: Spender, us: float) -> None:
        """Work of so many µs was asked for."""
        if spender in self.spent or len(self.spent) < _MOST_SPENDERS:
            self.spent[spender] = self.spent.get(spender, 0.0) + us

    @property
    def seen(self) -> list[Any]:
        """What the record is made of."""
        spent = [[*at, us] for at, us in self.spent.items()]
        return [self.decode_us, [one.numbers for one in self.pictures], spent, self.asked]


class Decoded:
    """A picture from its decoding on."""

    def __init__(self, size: tuple[int, int], of_bytes: int, decode_us: float, kind: Kind) -> None:
        self.size, self.bytes, self.decode_us, self.kind = size, of_bytes, decode_us, kind
        self.times = self.smaller_us = 0.0
        self.large_us, self.kept = 0.0, 1.0
        self.small_bytes = self.small_us = 0.0
        self.decoded_ns = perf_counter_ns()
        self.changed = False

    @classmethod
    def of(cls, made: FrameType, by: FrameType) -> Decoded | None:
        """The one that a picture is made from: `made` makes it, for a function of Pillow in the frame `by`."""
        sources = [made.f_locals["self"]]
        for name in _OF_SEVERAL.get(by.f_code.co_name, ()):
            given = by.f_locals.get(name)
            sources += given if isinstance(given, tuple | list) else [given]
        found = (getattr(one, "__dict__", {}).get(_TAG) for one in sources)
        return next(filter(None, found), None)

    def tag(self, picture: Any) -> None:
        """A picture is this one, or was made from it."""
        picture.__dict__[_TAG] = self

    def made(self, size: tuple[int, int], by: FrameType, took_us: float) -> bool:
        """A picture of this size was made from it by a function of Pillow; whether that worked on all of its pixels."""
        left = size[0] * size[1] / max(self.size[0] * self.size[1], 1)
        if times := times_smaller(by):
            self.times = min(times, self.times or times)
            self.smaller_us += took_us
            if self.kept == 1.0 and not self.changed and is_whole(by, self.size):
                # Three bytes for each pixel: the same of the same file, whatever is drawn by lot afterwards.
                self.small_bytes = 3.0 * size[0] * size[1]
                self.small_us = self.decode_us + (perf_counter_ns() - self.decoded_ns) / 1e3
        if left < _AS_LARGE:
            self.kept = min(self.kept, left)
        self.changed |= by.f_code.co_name not in _TAKES_OVER
        if times or self.kept < 1.0 or not self.changed:
            return False
        self.large_us += took_us
        return True

    @property
    def numbers(self) -> Numbers:
        """For the record."""
        shown = [*self.size, self.bytes, self.times, self.decode_us, self.smaller_us, self.large_us]
        return [*(round(one, 1) for one in shown), round(self.kept, 4), self.small_bytes, round(self.small_us, 1)]


def times_smaller(frame: FrameType) -> float:
    """How many times smaller, in its longer side, a function of Pillow makes what it takes; 0.0 where it does not."""
    local = frame.f_locals
    if frame.f_code.co_name == "reduce":
        factor = local["factor"]
        return float(min(factor) if isinstance(factor, tuple) else factor)
    if frame.f_code.co_name != "resize":
        return 0.0
    (left, top, right, bottom), (width, height) = local["box"], local["size"]
    return float(min((right - left) / width, (bottom - top) / height))


def is_whole(frame: FrameType, size: tuple[int, int]) -> bool:
    """Whether a function of Pillow makes all of a picture of this size smaller, and not a part of it."""
    box, source = frame.f_locals.get("box"), frame.f_locals["self"]
    return source.size == size and (box is None or tuple(box) == (0, 0, *size))


def as_record(seen: list[Any], fetch_us: float) -> dict[str, Any]:
    """What most pictures of a kind have in common, with the keys of `record.Pictures`; seen: `Kind.seen`."""
    decode_us, pictures, spent, asked = seen
    columns = [sorted(values) for values in zip(*pictures, strict=True)]
    width, height, size, times, decoded, smaller, large, kept, small_bytes, small_us = columns
    middle = len(pictures) // 2
    found = {"width": width[middle], "height": height[middle], "bytes": size[middle], "decode_us": decoded[middle]}
    # A random crop is now larger, now smaller: what fits nearly all of them counts.
    found |= {"times_smaller": times[len(pictures) // 10], "smaller_us": smaller[middle]}
    # What is done to a picture may be drawn by lot: the mean.
    found |= {"large_us": sum(large) / len(pictures), "kept": sum(kept) / len(pictures)}
    # Sizes that are drawn by lot are more than those of the files.
    if small_bytes[0] and len(set(small_bytes)) <= len({(one[0], one[1]) for one in pictures}):
        found |= {"small_bytes": small_bytes[middle], "small_us": small_us[middle]}
    *at, by, _ = max(spent, key=lambda one: one[-1], default=["", 0, "", "", 0.0])
    places = {"large_at": at, "asked": asked}
    place = {name: dict(zip(("file", "line", "function"), at, strict=True)) for name, at in places.items() if at[0]}
    return found | place | {"large_by": by, "share": min(decode_us / fetch_us, 1.0), "seen": len(pictures)}

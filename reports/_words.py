"""Numbers, names and paths as words: every output says them the same way.

Times come in µs and are shown with three significant digits in the unit that fits. All functions are pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from advisor.api import data_size, duration, duration_unit, significant

time = duration  # 640 µs, 2.43 ms, 1.24 s
size = data_size  # 4.19 MB

# ANSI sequences: colours and cursor moves (CSI), window titles and links (OSC), and two-character escapes.
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-_]|\x9b[0-?]*[ -/]*[@-~]")
# Control characters, line and paragraph separators, and the marks that reverse the direction of text (a name with
# them can show another text than it holds). Lone surrogates have no UTF-8 form at all.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
_HOME = re.compile(r"^(?:/home/[^/]+|/Users/[^/]+|/root|[A-Za-z]:[\\/]+Users[\\/]+[^\\/]+)(?=[\\/]|$)")
_USER_IN_TMP = re.compile(r"(torchinductor_|/tmp/[a-z]+_)[^/\s]+")


def clean(text: object) -> str:
    """The text without what a terminal or a page would obey: ANSI sequences and control characters."""
    return _CONTROL.sub("", _ANSI.sub("", str(text)))


def one_line(text: object) -> str:
    """The cleaned text with every run of white space as one space."""
    return " ".join(clean(text).split())


def path(text: str) -> str:
    """A path without the user's name: a home folder is written ~."""
    return _USER_IN_TMP.sub(r"\1…", _HOME.sub("~", one_line(text)))


def time_range(low_us: float, high_us: float, unit_us: float | None = None) -> str:
    """Two durations in one unit: 0.90 to 1.64 ms; one where they look the same; up to … where the low end is 0.

    `unit_us` is a duration whose unit is taken, where the range stands beside it.
    """
    factor, unit = duration_unit(high_us if unit_us is None else unit_us)
    decimals = len(significant(high_us / factor).partition(".")[2])
    # Hundredths of the unit are finer than any saving is known.
    low, high = (_fixed(value / factor, min(decimals, 2)) for value in (low_us, high_us))
    if low.startswith("<") or not low.strip("0."):
        return f"up to {high} {unit}" if high_us > 0 else f"{high} {unit}"
    return f"{high} {unit}" if low == high else f"{low} to {high} {unit}"


def time_at(us: float, scale_us: float) -> str:
    """A duration in the unit and with the decimals that fit `scale_us`, so that a column of them lines up."""
    factor, unit = duration_unit(scale_us)
    return f"{_fixed(us / factor, len(significant(scale_us / factor).partition('.')[2]))} {unit}"


def _fixed(value: float, decimals: int) -> str:
    """A number with so many decimals; what is there is never shown as nothing."""
    text = f"{value:,.{decimals}f}"
    return f"<{10**-decimals:.{decimals}f}" if value > 0 and not text.strip("0.") else text


def share(value: float) -> str:
    """A share of one as per cent: 43 %, 0.4 %, never 0 or 100 for what is not."""
    percent = value * 100
    if percent == 0 or not math.isfinite(percent):
        return "0 %" if percent == 0 else "unknown"
    if 0 < percent < 1:
        return f"{percent:.1f} %" if percent >= 0.05 else "<0.1 %"
    if 99.5 <= percent < 100:
        return f"{percent:.1f} %" if percent < 99.95 else ">99.9 %"
    return f"{percent:.0f} %"


def share_range(low: float, high: float) -> str:
    """Two shares: 8 to 10 %."""
    first, last = share(low), share(high)
    return last if first == last else f"{first.removesuffix(' %')} to {last}"


def count(value: float) -> str:
    """A number of things: 1,465, 12.5, 0.25."""
    if not math.isfinite(value):
        return "unknown"
    if value == round(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    text = significant(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def amount(value: float) -> str:
    """A large number of things with three significant digits: 640, 787 k, 1.20 G."""
    for limit, factor, unit in ((1e3, 1.0, ""), (1e6, 1e3, " k"), (1e9, 1e6, " M"), (1e12, 1e9, " G")):
        if abs(value) < limit * 0.9995:
            return f"{significant(value / factor)}{unit}" if unit else count(value)
    return f"{significant(value / 1e12)} T"


def plural(number: float, noun: str) -> str:
    """1 step, 2 steps."""
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def metric(value: float, unit: str) -> str:
    """The value of a metric in its unit."""
    say = {"us": time, "share": share, "bytes": size}.get(unit, count)
    return f"{say(value)}/s" if unit == "per_second" else say(value)


# Numbers by name, such as one for each rank: of more the least and the most.
_MOST_NAMED = 16


def fact(name: str, value: Any) -> tuple[str, str]:
    """A piece of evidence as (what, value); the unit is the suffix of its name, two rising numbers are a range."""
    label, _, suffix = name.rpartition("_")
    say = _SUFFIXES.get(suffix) if label else None
    if _is_number(value):
        said = (say or count)(value)
    elif _is_range(value):
        low, high = value
        said = time_range(low, high) if suffix == "us" and label else f"{(say or count)(low)} to {(say or count)(high)}"
    else:
        said = plain(value)
    # A duration speaks for itself; what a share or a size is of needs its word.
    shown = label if suffix in ("us", "ns") and label else name
    return one_line(shown).replace("_", " "), said


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_range(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(map(_is_number, value)) and value[0] <= value[1]


def plain(value: Any) -> str:
    """Any value of a fact as short text: lists with commas, None as unknown."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return count(value)
    if isinstance(value, dict):
        return _named(value)
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return ", ".join(short(plain(item)) for item in value)
    return one_line(value)


def _named(values: Mapping[Any, Any]) -> str:
    if len(values) > _MOST_NAMED and all(map(_is_number, values.values())):
        return f"{count(min(values.values()))} to {count(max(values.values()))} ({count(len(values))} values)"
    return ", ".join(f"{one_line(key)}: {plain(item)}" for key, item in values.items())


def numbers(values: Iterable[int]) -> str:
    """Whole numbers with runs joined: 0-3, 7."""
    ordered = sorted(set(values))
    runs: list[list[int]] = []
    for value in ordered:
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def listed(words: list[str]) -> str:
    """a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def sentence(text: str) -> str:
    """The text with a capital at its start, unless it starts with a name: loss.item(), `code`, cuDNN."""
    first = one_line(text).split(" ")[0].rstrip(",.:;")
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


def short(name: str, limit: int = 64) -> str:
    """A kernel or op name in at most `limit` characters: C++ noise goes first, then the end of a template's
    arguments, or the middle of a name whose end tells as much as its beginning."""
    text = one_line(name)
    if len(text) <= limit:
        return text
    text = text.removeprefix("void ")
    for noise in ("at::native::", "(anonymous namespace)::", "at::detail::", "at::cuda::", "std::"):
        text = text.replace(noise, "")
    if text.endswith(")") and len(text) > limit:
        text = _without_arguments(text)
    if len(text) <= limit:
        return text
    tail = 0 if "<" in text[: limit // 2] else limit // 3
    return f"{text[: limit - tail - 1]}…{text[len(text) - tail :]}"


def pieces(name: str) -> list[str]:
    """A name cut where a line may end within it: after ::, after an underscore, before a template's arguments.

    Put together again they are the name. A start of one or two letters stays with what follows.
    """
    return [piece for piece in re.split(r"(?<=\w\w::)(?=\w)|(?<=[a-z0-9]{2}_)(?=\w)|(?=<)", name) if piece]


# What a fact's name may end in, and how its value is then said.
_SUFFIXES: dict[str, Callable[[float], str]] = {
    "us": time,
    "ns": lambda ns: time(ns / 1e3),
    "bytes": size,
    "share": share,
}


def _without_arguments(text: str) -> str:
    """A C++ signature without the argument list at its end."""
    depth = 0
    for index in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[index], 0)
        if depth == 0:
            return text[:index] or text
    return text

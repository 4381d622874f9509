"""A history as text with a sparkline, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from advisor.gate import words
from advisor.gate.history.model import Changed, History, Series

_BLOCKS = "▁▂▃▄▅▆▇█"
# A terminal's line; of more results the last ones are drawn.
_WIDTH = 100


def as_json(found: History) -> str:
    """The history as an indented JSON document."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def as_text(found: History) -> str:
    """The history for a terminal."""
    lines: list[str] = []
    for one in found.series:
        where = ", ".join(f"{key} {value}" for key, value in one.fingerprint.items())
        lines += [f"{one.workload or 'unnamed'}  {one.metric}  ({where})"]
        lines += [f"  {sparkline([point.value for point in one.points[-_WIDTH:]])}", f"  {summary(one)}"]
        lines += [f"  {sentence(change, one)}" for change in one.changes]
        lines += [""]
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)]).rstrip("\n") + "\n"


def sparkline(values: Sequence[float]) -> str:
    """The values as blocks of eight heights, from the least to the largest."""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(_BLOCKS[min(int((value - low) / span * len(_BLOCKS)), len(_BLOCKS) - 1)] for value in values)


def summary(one: Series) -> str:
    """How many commits, from what to what, and how noisy."""
    values = [point.value for point in one.points]
    ends = f"{value(min(values), one)} to {value(max(values), one)}, last {value(values[-1], one)}"
    commits = f"{len(values)} commit{'s' * (len(values) != 1)}: {ends}"
    if one.why:
        return f"{commits}; not judged: {one.why}"
    noise = f", noise {one.noise * 100:.1f} %" if one.noise is not None else ""
    return f"{commits}{noise}{'' if one.changes else '; no change found'}"


def sentence(change: Changed, one: Series) -> str:
    """A change in a sentence, with its commits."""
    how = "worse" if change.worse else "better"
    levels = f"{words.percent(change.share)} ({value(change.before, one)} to {value(change.after, one)})"
    sure = f"p = {change.p:.3f}"
    if change.kind == "step":
        return f"{how}: {levels} between {short(change.first)} and {short(change.last)}, {sure}"
    count = change.at[1] - change.at[0]
    each = f"{(change.per_commit or 0.0) * 100:+.2f} % each"
    hidden = (
        ", below the noise between two neighboring commits"
        if abs(change.per_commit or 0.0) < (one.noise or 0.0)
        else ""
    )
    commits = f"{count} commits, {short(change.first)}..{short(change.last)}"
    return f"{how}: slow drift of {levels} over {commits}: {each}{hidden}; {sure}"


def short(commit: str) -> str:
    """A commit's id as git shortens it; anything else as it is."""
    plain = commit.rstrip("+")
    is_id = len(plain) == 40 and all(letter in "0123456789abcdef" for letter in plain)
    return commit.replace(plain, plain[:10]) if is_id else commit


def value(number: float, one: Series) -> str:
    """A result in the series' unit."""
    return words.value(number, one.unit) if one.unit else words.plain(number)  # type: ignore[arg-type]

"""What holds memory at the peak, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from advisor.api import MemoryHolder, MemoryPeak, Report, dataclass

from . import _words

KINDS = {
    "weights": "Weights",
    "optimizer": "Optimizer state",
    "gradients": "Gradients",
    "activations": "Activations",
    "temporaries": "Temporaries",
    "input": "Input",
    "unknown": "Not attributed",
}
# In the order of `MemoryPoint.bytes`: the drawing classes of the page.
FILLS = ("backward", "optimizer", "copy", "forward", "launch", "input", "other")
RISKS = {
    "exact": "",
    "draws": "other random draws",
    "numerics": "changes rounding",
    "semantics": "changes the training",
}
WIDE, HIGH = 1000, 160


@dataclass(frozen=True, slots=True)
class Row:
    """A holder in words. x, width: of the stacked bar, per cent; fill: its drawing class, of a kind."""

    name: str
    size: str
    share: str
    x: float
    width: float
    fill: str


def rows(peak: MemoryPeak, holders: Sequence[MemoryHolder], names: Mapping[str, str]) -> list[Row]:
    """Holders with their share of the peak."""
    found, x = [], 0.0
    whole = peak.peak_bytes or 1
    for one in holders:
        name = names.get(one.name) or _words.path(one.name) or one.note
        part = one.bytes / whole
        fill = FILLS[list(KINDS).index(one.name)] if one.name in KINDS else "other"
        found.append(
            Row(name, _words.size(one.bytes), _words.share(part), round(100 * x, 3), round(100 * part, 3), fill)
        )
        x += part
    return found


def areas(peak: MemoryPeak) -> list[tuple[str, str]]:
    """Of each kind its drawing class and the outline of its area over the window."""
    points = peak.timeline
    if len(points) < 2:
        return []
    end = points[-1].us or 1.0
    top = max(sum(point.bytes) for point in points) or 1
    found = []
    for kind, fill in enumerate(FILLS):
        if not any(point.bytes[kind] for point in points):
            continue
        edges = [
            [(round(WIDE * p.us / end, 1), round(HIGH * (1 - sum(p.bytes[:upto]) / top), 1)) for p in points]
            for upto in (kind + 1, kind)
        ]
        found.append((fill, " ".join(f"{x:g},{y:g}" for x, y in (*edges[0], *reversed(edges[1])))))
    return found


def reliefs(peak: MemoryPeak) -> list[tuple[str, str, str]]:
    """What would free memory: the change, at most how much, and what it costs or changes."""
    found = []
    for one in peak.reliefs:
        costs = [f"a second forward pass of {_words.time(one.forward_us)} per step"] if one.forward_us else []
        costs += [RISKS[one.risk]] if RISKS[one.risk] else []
        found.append((one.title, f"up to {_words.size(one.bytes)}", ", ".join(costs)))
    return found


def summary(report: Report) -> Iterator[str]:
    """At most six lines for a terminal."""
    peak = report.memory
    if peak is None:
        return
    where = "on the device" if peak.on_device else "on the host"
    yield f"Memory at the peak: {_words.size(peak.peak_bytes)} {where}"
    ordered = sorted(peak.kinds, key=lambda one: -one.bytes)
    yield _words.listed([f"{row.name.lower()} {row.size}" for row in rows(peak, ordered, KINDS)])
    named = [one for one in peak.lines if not one.note][:2]
    if named:
        yield f"most of it allocated at {_words.listed([f'{r.name} ({r.size})' for r in rows(peak, named, {})])}"
    for title, size, costs in reliefs(peak)[:2]:
        yield f"{title}: frees {size}{f' ({costs})' if costs else ''}"

"""What reading found out about the file itself, as statements of health."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from advisor.model import Health
from advisor.trace.events import DEVICE_WORK, Events
from advisor.trace.numbers import distinct_pairs

if TYPE_CHECKING:
    from advisor.trace.read.rows import Rows

# Programmatic dependent launch lets kernels of one stream overlap by some µs each (74 overlaps of at most 3.7 µs in a
# trace of a B200): both bounds are far above that, and a share of the summed time is not polluted by one late row.
OVERRUN_NS = 5_000_000
OVERRUN_SHARE = 0.1


def health(rows: Rows, shape: str, cut_short: str, events: Events) -> tuple[Health, ...]:
    """One statement per kind of damage, repair or omission; nothing for a sound file."""
    counts = rows.careful.counts
    found: list[Health] = []
    lost, cut = counts.get("lost", 0), counts.get("cut off", 0)
    if cut_short or cut or (shape == "object" and rows.careful.tail is None):
        why = cut_short or "the file ends before its list of events does"
        found.append(
            Health(
                "trace-truncated",
                "warning",
                f"{why}: all {len(events)} complete events before that were read; the time after that is unknown, "
                "not idle",
            )
        )
    if lost:
        found.append(Health("trace-lost", "warning", f"{lost} damaged {_events(lost)} could not be read"))
    repaired = counts.get("repaired", 0)
    if repaired:
        found.append(
            Health(
                "trace-repaired", "note", f"{repaired} damaged {_events(repaired)} fixed (quotes, escapes, stray text)"
            )
        )
    if counts.get("bytes"):
        found.append(
            Health("trace-encoding", "note", "text that is not UTF-8: invalid bytes were replaced, events kept")
        )
    if counts.get("head"):
        found.append(Health("trace-head", "note", "damaged text around the events: only known keys were read"))
    reasons = [*rows.tables.dropped.items(), *_others(counts)]
    for reason, number in sorted(reasons, key=lambda one: (-one[1], one[0])):  # the most first, in any way of reading
        found.append(Health("trace-rows", "note", f"{number} {_events(number)} {reason}"))
    return (*found, *_overruns(events))


def _overruns(events: Events) -> tuple[Health, ...]:
    """Device rows that last into the next row of their stream, by more than hardware can overlap."""
    rows = np.flatnonzero(events.of(*DEVICE_WORK))
    places, place = distinct_pairs(events.device[rows], events.stream[rows])
    order = np.argsort(place, kind="stable")
    rows, place = rows[order], place[order]
    over = np.maximum(events.start_ns[rows[:-1]] + events.dur_ns[rows[:-1]] - events.start_ns[rows[1:]], 0)
    over[place[1:] != place[:-1]] = 0
    late = np.bincount(place[1:], over, len(places))
    numbers = np.bincount(place[1:][over > 0], minlength=len(places))
    lengths = np.bincount(place, events.dur_ns[rows], len(places))
    found = []
    for (device, stream), total, number, length in zip(places.tolist(), late, numbers, lengths, strict=True):
        if total > OVERRUN_NS and total > OVERRUN_SHARE * length:
            where = f"on stream {stream} of device {device}"
            text = f"{number} {_events(number)} {where} last {total / 1e6:.0f} ms into the next"
            found.append(
                Health("trace-overrun", "warning", f"{text}: these durations are impossible, so busy time is too high")
            )
    return tuple(found)


def _events(number: int) -> str:
    return "event" if number == 1 else "events"


def _others(counts: dict[str, int]) -> list[tuple[str, int]]:
    said = {"lost", "cut off", "repaired", "bytes", "head"}
    return [(f"{reason} left out", number) for reason, number in counts.items() if reason not in said]

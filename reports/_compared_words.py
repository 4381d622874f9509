"""The words of a comparison: the page and the Markdown say them alike. All functions are pure."""

from __future__ import annotations

from advisor.api import Compared, ComparedRow, Comparison, Flagged, Mover, significant

from . import _labels, _words

KINDS = {"kernel": "Device work", "op": "CPU operators", "line": "Your lines", "module": "Modules"}
MISSING = "not recorded"


def title(c: Comparison) -> str:
    """The verdict in a sentence."""
    before, after = c.a.step_us, c.b.step_us
    if before is None or after is None:
        return "The step times cannot be compared: not recorded on both sides"
    ends = f"{_words.time(before)} to {_words.time(after)} per step"
    if c.change.certainty == "within the noise":
        return f"{ends}: within the noise"
    share = (after - before) / before if before else 0.0
    if abs(share) < 0.0005:
        return f"{ends}: no difference"
    longer = f"{significant(after / before)} times as long" if share >= 1 else f"{_words.share(share)} slower"
    how = f"{ends}: {_words.share(-share)} faster" if share < 0 else f"{ends}: {longer}"
    return how if c.change.certainty in ("faster", "slower") else f"{how}; its uncertainty is not known"


def signed(us: float) -> str:
    """A difference of times with its sign: +1.8 ms."""
    return "0" if us == 0 else f"{'+' if us > 0 else '−'}{_words.time(abs(us))}"


def optional_time(us: float | None) -> str:
    """A time, or that it is not there."""
    return "none" if us is None else _words.time(us)


def part(row: ComparedRow) -> tuple[str, str, str, str]:
    """A part of the step as (name, A, B, difference)."""
    change = row.change
    return (
        _labels.part(row.id).name,
        MISSING if row.base is None else _words.time(row.base),
        MISSING if row.head is None else _words.time(row.head),
        "" if change is None else signed(change),
    )


def mover(row: Mover) -> tuple[str, str, str]:
    """What moved as (A, B, difference); a full list that lacks a name only bounds its time."""
    base, head = optional_time(row.base_us), optional_time(row.head_us)
    change = signed(row.change_us)
    if row.at_most == "base":
        return f"at most {base}", head, f"at least {change}"
    if row.at_most == "head":
        return base, f"at most {head}", f"at least {change}"
    return base, head, change


def calls(row: Mover) -> str:
    """How often a step has it on both sides: 98 to 2; one number where they are equal; "" where not known."""
    if row.base_calls is None and row.head_calls is None:
        return ""
    counts = [_words.count(value or 0.0) for value in (row.base_calls, row.head_calls)]
    if None in (row.base_calls, row.head_calls) and row.at_most:
        return counts[0] if row.head_calls is None else counts[1]
    return counts[0] if counts[0] == counts[1] else f"{counts[0]} to {counts[1]}"


def worth(flag: Flagged) -> str:
    """What the fix of a finding saves: 0.9 to 1.64 ms per step."""
    if flag.high_us is None:
        return "saving not known"
    return f"{_words.time_range(flag.low_us or 0.0, flag.high_us)} per step"


def times(side: Compared) -> str:
    """The step times of a side in words."""
    t, how = side.times, "with the profiler on" if side.profiled else "without the profiler"
    if t.median is None:
        mean = f", mean {_words.time(t.mean)}" if t.mean is not None else ""
        return f"{MISSING}{mean}" if not t.n else f"{_words.plural(t.n, 'step')} {how}{mean}"
    ends = f", p10 to p90 {_words.time_range(t.p10, t.p90)}" if t.p10 is not None and t.p90 is not None else ""
    return f"{_words.plural(t.n, 'step')} {how}: median {_words.time(t.median)}{ends}"


def device(side: Compared) -> str:
    """What a side ran on."""
    return ", ".join(dict.fromkeys(_words.one_line(name) for name in side.devices)) or f"device {MISSING}"


def metric(row: ComparedRow, value: float | None) -> str:
    """A counter or figure of one side."""
    return MISSING if value is None else _words.metric(value, row.unit)

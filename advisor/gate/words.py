"""Numbers of a gate as people read them."""

from __future__ import annotations

from advisor.gate.model import Flagged, Row, StepTime
from advisor.model import Unit
from advisor.quantities import duration

_UNKNOWN = "not measured"


def value(number: float | None, unit: Unit) -> str:
    """`12`, `4.2 MB`, `2.41 ms`, `31.0 %`; *not measured* for None."""
    if number is None:
        return _UNKNOWN
    if unit == "us":
        return duration(number)
    if unit == "share":
        return f"{number * 100:.1f} %"
    if unit == "bytes":
        return size(number)
    return plain(number)


def plain(number: float) -> str:
    """A count without needless digits: `1,465`, `0.25`."""
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.4g}"


def size(number: float) -> str:
    """Bytes, exact below a kilobyte: exact counts must not look rounded where they differ by little."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(number) >= scale:
            return f"{number / scale:.4g} {unit}"
    return f"{number:.0f} B"


def change(row: Row) -> str:
    """`+1`, `-4.2 MB`, `+3.1 pp`; empty where a side is unknown, `=` where nothing moved."""
    if row.change is None:
        return ""
    if row.change == 0:
        return "="
    sign = "+" if row.change > 0 else "-"
    if row.unit == "share":
        return f"{sign}{abs(row.change) * 100:.1f} pp"
    share = f" ({row.change / row.base:+.1%})" if row.base and row.unit in ("us", "bytes") else ""
    return f"{sign}{value(abs(row.change), row.unit)}{share}"


def percent(share: float) -> str:
    """`+5.2 %` of 0.052."""
    return f"{share * 100:+.1f} %"


def worth(flag: Flagged) -> str:
    """How grave a finding is and what its fix saves: `high, 0.9 ms to 1.64 ms per step`, `low, up to 2 ms per step`."""
    if flag.high_us is None:
        return flag.severity
    most = duration(flag.high_us)
    return f"{flag.severity}, {f'{duration(flag.low_us)} to {most}' if flag.low_us else f'up to {most}'} per step"


def step_time(result: StepTime) -> str:
    """The one line that people quote: `step time +6.1 % [+4.0, +8.3], 10 lockstep pairs, noise 2.1 %`."""
    if not result.pairs:
        return f"step time was not compared: noise {result.noise * 100:.1f} % per base-against-base pair"
    kind = "lockstep pairs" if result.mode == "lockstep" else "pairs of runs"
    span = f"[{result.low * 100:+.1f}, {result.high * 100:+.1f}]"
    return (
        f"step time {percent(result.change)} {span}, {result.pairs} {kind}, noise {result.noise * 100:.1f} % per pair"
    )


def short(name: str, most: int = 90) -> str:
    """A name that fits a line: kernels of template libraries have hundreds of characters."""
    return name if len(name) <= most else name[: most - 1] + "…"

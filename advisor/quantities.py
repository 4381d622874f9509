"""Durations and sizes as text: rules, reports and the gate write them the same way."""

from __future__ import annotations

import math


def duration(us: float) -> str:
    """A duration of `us` microseconds with up to three significant digits: 3.42 µs, 2.4 ms, 60 ms, 1,800 s.

    Zeros at the end of the fraction are left out; in a column that has to line up, see `time_at` of the reports.
    """
    factor, unit = duration_unit(us)
    return f"{_brief(us / factor)} {unit}"


def duration_unit(us: float) -> tuple[float, str]:
    """µs in the unit that fits a duration, and its name; 999.5 would show as 1000 and takes the next unit."""
    return (1e6, "s") if abs(us) >= 999_500 else (1e3, "ms") if abs(us) >= 999.5 else (1.0, "µs")


def significant(value: float) -> str:
    """Three significant digits, never an exponent; 0 is 0, what is not finite is unknown."""
    if not math.isfinite(value):
        return "unknown"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    # 9.996 rounds up to a digit more.
    rounded = round(value, 2 - size)
    if abs(rounded) >= 10 ** (size + 1):
        size += 1
    return f"{rounded:,.{max(0, min(2 - size, 6))}f}"


def _brief(value: float) -> str:
    """Three significant digits without zeros at the end of the fraction."""
    digits = significant(value)
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def data_size(count: float) -> str:
    """A number of bytes in powers of 1000, with up to three significant digits: 512 B, 4.19 MB, 19 GB."""
    for limit, factor, unit in ((1e3, 1.0, "B"), (1e6, 1e3, "kB"), (1e9, 1e6, "MB"), (1e12, 1e9, "GB")):
        if abs(count) < limit * 0.9995:
            return f"{_brief(count / factor)} {unit}"
    return f"{_brief(count / 1e12)} TB"

"""A calibration as text."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.calibration.calibration import Calibration, Quantity
from advisor.capture.record import Measured


def lines(measured: Measured) -> Iterator[str]:
    """One line on what was measured, one for each quantity, one for each that could not be measured."""
    device = f", {measured.device}" if measured.device else ""
    threads = f"{measured.threads} thread{'s' * (measured.threads != 1)}"
    yield f"torch {measured.torch}, {threads}{device}; measured in {measured.seconds:.1f} s"
    if measured.waited:
        yield f"waited for a CPU core for {measured.waited * 100:.0f} % of that time"
    # What a launch costs is of no use without a device.
    found = [(name, one) for name, one in Calibration.of(measured).items() if measured.device or name != "launch_us"]
    widest = max(len(name) for name, _ in found)
    for name, quantity in found:
        yield f"{name:<{widest}}  {_range(quantity):>17} {quantity.unit:<8} {quantity.source}"
    for name, why in measured.failed.items():
        yield f"{name:<{widest}}  not measured: {why}"


def _range(quantity: Quantity) -> str:
    if quantity.low == quantity.high:
        return _number(quantity.low)
    return f"{_number(quantity.low)} … {_number(quantity.high)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

"""report.json: the contract that every other output is a function of."""

from __future__ import annotations

from advisor.model import Report
from advisor.reportfile import encode


def render(report: Report) -> str:
    """The report as JSON, readable back by `advisor.reportfile.decode`. Never holds NaN or Infinity."""
    return encode(report).decode("utf-8")

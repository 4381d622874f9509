"""report.json: the contract that every other output is a function of."""

from __future__ import annotations

from advisor.api import Report, encode_report


def render(report: Report) -> str:
    """The report as JSON, readable back by `advisor.report.report_file.decode`. Never holds NaN or Infinity."""
    return encode_report(report).decode("utf-8")

"""A reporter: one line."""

from advisor.api import Report


def render(report: Report) -> str:
    """The number of findings as a slogan."""
    return f"ACME: {len(report.findings())} findings, {len(report.outcomes)} rules\n"

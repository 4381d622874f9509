"""What a sink is given, and the sending: a sink that fails is one line, and never fails a run."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from advisor.engine import registry
from advisor.errors import AdvisorError
from advisor.gate.fingerprint import workload
from advisor.model import Finding, Report

# Columns of the table of findings.
COLUMNS = ("rule", "severity", "saves_low_ms", "saves_high_ms", "where", "message")


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a sink sends. A sink is a function `send(delivery) -> str` that returns where it went, in a few words.

    page, data   report.html and report.json, to be sent as files;  markdown: the report for a pull request
    environment  variables of the process, in which sinks find their settings
    """

    report: Report
    page: Path
    data: Path
    markdown: str
    environment: Mapping[str, str]

    @property
    def name(self) -> str:
        """What was run, without folders."""
        return plain(workload(self.report.run.command)) or "torch-advisor"

    @property
    def devices(self) -> list[str]:
        """What it ran on."""
        return [plain(name) for name in self.report.run.devices]


Sink = Callable[[Delivery], str]


def send(report: Report, names: Iterable[str], environment: Mapping[str, str]) -> list[str]:
    """Sends the report to each sink; one line for each, of success or of failure. Never raises an Exception."""
    with tempfile.TemporaryDirectory(prefix="advisor-sink-") as folder:
        try:
            delivery = _delivery(report, Path(folder), environment)
        except Exception as failure:
            return [f"nothing was sent: {_one_line(failure)}"]
        return [_sent(name, delivery) for name in names]


def _delivery(report: Report, folder: Path, environment: Mapping[str, str]) -> Delivery:
    texts = {name: registry.load_reporter(name)(report) for name in ("html", "json", "markdown")}
    page, data = folder / "report.html", folder / "report.json"
    page.write_text(texts["html"], "utf-8")
    data.write_text(texts["json"], "utf-8")
    return Delivery(report, page, data, texts["markdown"], environment)


def _sent(name: str, delivery: Delivery) -> str:
    try:
        sink: Sink = registry.load_named(registry.SINKS, name, "sink")
        return f"{name}: {sink(delivery)}"
    except ModuleNotFoundError as failure:
        return f"{name}: not sent: the module {failure.name} is missing; pip install 'torch-advisor[{name}]'"
    except (Exception, SystemExit) as failure:  # a tracker that ends the process must not end the run
        return f"{name}: not sent: {_one_line(failure)}"


def _one_line(failure: BaseException) -> str:
    said = str(failure) if isinstance(failure, AdvisorError) else f"{type(failure).__name__}: {failure}"
    return " ".join(said.split())[:300]


def plain(text: str) -> str:
    """The text in one line that any store can hold: file names of undecodable bytes carry lone surrogates."""
    return " ".join(text.encode("utf-8", "backslashreplace").decode().replace("\0", "").split())


def figures(report: Report) -> dict[str, float]:
    """Measured metrics, parts of the step in ms and savings, by a name that trackers group by its slashes."""
    found = {
        f"advisor/{_key(metric.id)}": float(metric.value)
        for metric in report.metrics.values()
        if metric.status == "measured" and metric.value is not None
    }
    for item in report.breakdown:
        if report.step_us is not None:
            found[f"advisor/step_ms/{_key(item.id)}"] = item.share * report.step_us / 1e3
        found[f"advisor/step_share/{_key(item.id)}"] = item.share
    if report.joint:
        found["advisor/joint_saving_low_ms"] = report.joint.low_us / 1e3
        found["advisor/joint_saving_high_ms"] = report.joint.high_us / 1e3
    found["advisor/findings"] = float(len(report.findings()))
    return found


def _key(id_: str) -> str:
    """The id as every tracker takes it: letters, digits, underscores, dots and hyphens."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", id_)[:100]


def rows(report: Report) -> list[tuple[str, str, float | None, float | None, str, str]]:
    """The findings as rows of `COLUMNS`; a saving that is not known is None."""
    return [
        (outcome.rule, finding.severity, *_saving(finding), plain(_where(finding)), plain(finding.message))
        for outcome, finding in report.findings()
    ]


def _saving(finding: Finding) -> tuple[float | None, float | None]:
    saving = finding.saving
    return (saving.low_us / 1e3, saving.high_us / 1e3) if saving else (None, None)


def _where(finding: Finding) -> str:
    return f"{Path(finding.where[0].file).name}:{finding.where[0].line}" if finding.where else ""

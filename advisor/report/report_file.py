"""report.json: the Report as bytes, and back.

`decode(encode(report))` is the report again, findings in their order. The bytes are stable: the same report always
gives the same file. No NaN and no Infinity is ever written; what cannot be read back is not written either.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from advisor.errors import InputError, UsageError
from advisor.model import SCHEMA, VERSION, Finding, Metric, Outcome, Report, finding_order

# From more ranks on nobody reads the file line by line, and indentation is 28 % of it (1,024 ranks).
_MOST_READ = 64
_STATUS_ORDER = ("found", "skipped", "error", "clear")


class _Head(msgspec.Struct):
    """The two keys that say whether the rest can be read at all."""

    schema: str = ""
    version: int = 0


def encode(report: Report) -> bytes:
    """The report as UTF-8 JSON, findings in order, numbers finite.

    Raises ValueError with the name of a field whose value is not allowed (NaN instead of a number).
    """
    sorted_report = ordered(report)
    try:
        first = msgspec.json.encode(sorted_report, enc_hook=plain)
    except (TypeError, UnicodeEncodeError):
        # A key or a text that JSON cannot hold, in a fact or a file name.
        first = msgspec.json.encode(_clean(msgspec.to_builtins(sorted_report, enc_hook=plain)))
    try:
        # What was read back is what is written: whole numbers in places of fractions get one form.
        checked = msgspec.json.decode(first, type=Report)
    except msgspec.MsgspecError as failure:
        raise ValueError(f"the report violates its own schema: {failure}") from failure
    # What the file is stands first, so that a person (and `head`) sees it.
    data = {"schema": checked.schema, "version": checked.version} | msgspec.to_builtins(checked)
    indent = 1 if len(checked.ranks) <= _MOST_READ else -1
    return msgspec.json.format(msgspec.json.encode(data), indent=indent) + b"\n"


def decode(data: bytes, path: Path | str = "report.json") -> Report:
    """The report in a file's bytes; `path` is only for the message.

    Raises InputError for a damaged or foreign file, UsageError for one that a newer torch-advisor wrote.
    """
    try:
        head = msgspec.json.decode(data, type=_Head)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as failure:
        raise InputError(f"{path}: not a readable report ({_why(failure)}); analyze the trace again") from failure
    if head.schema != SCHEMA:
        raise InputError(f"{path}: not a report of torch-advisor (no schema {SCHEMA}); name a report.json")
    if head.version > VERSION:
        text = f"{path}: written by a newer torch-advisor (report version {head.version}, this one reads {VERSION})"
        raise UsageError(f"{text}; upgrade torch-advisor")
    try:
        return msgspec.json.decode(data, type=Report)
    except (msgspec.MsgspecError, RecursionError) as failure:
        raise InputError(f"{path}: a damaged report ({_why(failure)}); analyze the trace again") from failure


def ordered(report: Report) -> Report:
    """The report in the order of the contract: findings by saving, and the rules by their best finding."""
    step_us = report.step_us
    outcomes = [replace(outcome, findings=_sorted(outcome, step_us)) for outcome in report.outcomes]
    best: dict[str, int] = {}
    for at, (outcome, _) in enumerate(replace(report, outcomes=tuple(outcomes)).findings()):
        best.setdefault(outcome.rule, at)
    return replace(
        report,
        outcomes=tuple(
            sorted(outcomes, key=lambda one: (_STATUS_ORDER.index(one.status), best.get(one.rule, 0), one.rule))
        ),
        metrics={name: _finite(metric) for name, metric in report.metrics.items()},
        ranks=tuple(
            replace(rank, metrics={name: _finite(metric) for name, metric in rank.metrics.items()})
            for rank in report.ranks
        ),
    )


def _sorted(outcome: Outcome, step_us: float | None) -> tuple[Finding, ...]:
    return tuple(sorted(outcome.findings, key=lambda finding: finding_order(outcome.rule, finding, step_us)))


def _finite(metric: Metric) -> Metric:
    """The metric, or the same not measured where its value is no finite number."""
    if metric.value is None or math.isfinite(metric.value):
        return metric
    why = metric.why or "the measured value is not a finite number"
    return replace(metric, value=None, status="not_measured", why=why)


def plain(value: Any) -> Any:
    """What JSON can hold in place of a value of another type: facts come from rules of any origin."""
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return value.tolist()
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    return str(value)


def _clean(value: Any) -> Any:
    """The builtins with every float finite or null and every string valid UTF-8."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        # A file name with undecodable bytes carries lone surrogates, which no UTF-8 file can hold.
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_clean(str(key)): _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    return value


def _why(failure: BaseException) -> str:
    return str(failure).splitlines()[0][:200] if str(failure) else type(failure).__name__

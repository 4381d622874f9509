"""The gate's result as SARIF 2.1.0, for code-scanning pages; never the only channel: forks may not upload it."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from advisor import __version__
from advisor.gate import verdict, words
from advisor.gate.model import Flagged, Result, Row

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(result: Result) -> str:
    """The log: one result per regression, budget and new finding; an open verdict is one result of level *note*."""
    results = [_row(row) for row in (*result.budgets, *result.counters) if row.status == "worse"]
    results += [_finding(flag) for flag in result.new_findings]
    if result.step_time and result.step_time.decision != "pass":
        level = "error" if result.step_time.decision == "regression" else "note"
        results.append(_result("gate/step-time", level, verdict.of_step_time(result.step_time)[1], "", "step-time"))
    if not results and result.verdict != "pass":
        results.append(_result("gate/verdict", "note", f"{result.verdict}: {result.reason}", "", result.verdict))
    rules = sorted({entry["ruleId"] for entry in results})
    driver = {
        "name": "torch-advisor gate",
        "version": __version__,
        "rules": [
            {"id": rule, "shortDescription": {"text": rule.replace("/", ": ").replace("-", " ")}} for rule in rules
        ],
    }
    run = {"tool": {"driver": driver}, "results": results, "properties": {"verdict": result.verdict}}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _row(row: Row) -> dict[str, Any]:
    numbers = f"{words.value(row.base, row.unit)} -> {words.value(row.head, row.unit)} {words.change(row)}".strip()
    text = f"{row.id}: {numbers} ({row.limit})" if row.limit else f"{row.id}: {numbers}"
    return _result(f"gate/{row.id}", "error" if row.gated else "warning", text, row.where, row.id)


def _finding(flag: Flagged) -> dict[str, Any]:
    # The line stays out of the print: it moves with every edit above it.
    file = flag.where.rpartition(":")[0]
    return _result(
        f"finding/{flag.rule}", "warning", f"{flag.message} ({words.worth(flag)})", flag.where, f"{flag.rule} {file}"
    )


def _result(rule: str, level: str, text: str, where: str, print_of: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "ruleId": rule,
        "level": level,
        "message": {"text": text},
        "partialFingerprints": {"gate/v1": hashlib.sha256(f"{rule} {print_of}".encode()).hexdigest()[:32]},
    }
    found = re.fullmatch(r"(.+):(\d+)", where)
    if found:
        place = {
            "artifactLocation": {"uri": found[1].replace("\\", "/")},
            "region": {"startLine": max(1, int(found[2]))},
        }
        entry["locations"] = [{"physicalLocation": place}]
    return entry

"""The tools of `advisor mcp`: each runs the command of its name, and answers with what that wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from advisor.agents import children, pages
from advisor.agents.children import Tick
from advisor.agents.results import (
    Change,
    Compared,
    Explained,
    Findings,
    Gated,
    TrialView,
    TriedView,
    bounded,
    cut,
    digits,
    ms,
)
from advisor.errors import AdvisorError
from advisor.gate.difference import Difference
from advisor.gate.files import read_report
from advisor.gate.model import Cause, Flagged, Result, Row
from advisor.model import Trial, Tried

# Rows of a kind; the reports hold the rest.
_ROWS = 8
_READING_S = 120.0
_COMPARED = (
    "two single profiles cannot prove a small difference: use try before the edit, or "
    "`advisor gate --base REF -- SCRIPT` after it"
)
_NOT_TRIED = "fix the reason given (a larger budget_s, another rule); else apply the fix, profile, and compare"
_DOUBTFUL = "read the notes: step times are doubtful; profile both again when the machine is idle, or use try"
_PAGE = 6500
_NO_SCRIPT = "because script begins with an option; begin with the script, -m MODULE, or -- LAUNCHER"
# Gate statuses that come with a verdict on stdout.
_JUDGED = (0, 1, 3)


async def profile(script: Sequence[str], output: str, whole_run: bool, limit_s: float, tick: Tick) -> Findings:
    """Profiles a script and reads its report."""
    if _is_option(script[0]):
        return Findings(cannot_answer=_NO_SCRIPT)
    words = ["run", "--quiet", *([] if whole_run else ["--stop-after-profile"]), "--output", output, *script]
    return await _reported(words, output, limit_s, tick)


async def analyze(paths: Sequence[str], output: str, limit_s: float, tick: Tick) -> Findings:
    """Reports on traces that exist already."""
    options = [path for path in paths if path.startswith("-")]
    if options or not paths:
        return Findings(cannot_answer="because paths must name traces or folders, not options")
    return await _reported(["analyze", "--quiet", "--output", output, *paths], output, limit_s, tick)


async def _reported(words: Sequence[str], output: str, limit_s: float, tick: Tick) -> Findings:
    if output.startswith("-"):
        return Findings(cannot_answer="because output must be a folder, not an option")
    file = Path(output) / "report.json"
    before = _stamp(file)
    done = await children.run(words, limit_s, tick)
    if done.status is None or _stamp(file) == before:
        return Findings(
            cannot_answer=cut(done.why()), next_step="run the script alone to see whether it works, then profile again"
        )
    found = findings(output, 0)
    note = f"the script ended with status {done.status}; the figures describe the steps before that"
    return found if done.status == 0 else replace(found, notes=[note])


def _is_option(word: str) -> bool:
    """Whether it is an option of ours and not what to start: a script, `-m`, `-c`, or `--` and a launcher."""
    return word.startswith("-") and word[:2] not in ("-m", "-c") and word != "--"


def _stamp(file: Path) -> tuple[int, int] | None:
    """What tells whether a file was written again."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def findings(report: str, offset: int) -> Findings:
    """A page of the findings of a stored report."""
    try:
        return pages.page(read_report(Path(report), baseline=False), Path(report), offset)
    except AdvisorError as failure:
        return Findings(
            report=cut(report), cannot_answer=f"because {cut(failure)}", next_step="profile the script first"
        )


async def explain(rule: str, tick: Tick) -> Explained:
    """The page of a rule."""
    done = await children.run(["explain", "--", rule], _READING_S, tick)
    if done.status != 0:
        return Explained(cut(rule, 60), cannot_answer=cut(done.why()), next_step="use a rule id of a finding")
    page = done.out.decode("utf-8", "replace")
    if len(page.encode()) > _PAGE:
        page = page.encode()[:_PAGE].decode("utf-8", "ignore") + "…"
    return Explained(cut(rule, 60), page, "apply its fix at the finding's lines, unless “When to leave it” applies")


async def compare(base: str, head: str, tick: Tick) -> Compared:
    """What differs between two stored reports."""
    done = await children.run(["compare", "--format", "json", "--", base, head], _READING_S, tick)
    if done.status != 0:
        return Compared(cannot_answer=cut(done.why()), next_step="profile both versions, each into its own folder")
    found = msgspec.json.decode(done.out, type=Difference)
    before, after = found.step.base, found.step.head
    share = digits(after / before - 1) if before and after is not None else None
    doubts = [note for note in found.notes if note.startswith(("A: ", "B: "))]
    why = None if share is not None else "because the step time of one side was not measured"
    return bounded(
        Compared(
            base_step_ms=ms(before),
            head_step_ms=ms(after),
            change_share=share,
            parts=_rows(found.parts),
            counters=_rows(found.counters),
            ops=[_cause(cause) for cause in found.ops[:_ROWS]],
            new_findings=_flags(found.new_findings),
            resolved_findings=_flags(found.gone_findings),
            notes=[cut(note) for note in (*doubts, *(one for one in found.notes if one not in doubts))],
            next_step=_DOUBTFUL if doubts else _COMPARED,
            cannot_answer=why,
        )
    )


async def try_(script: Sequence[str], report: str, only: str, budget_s: float, tick: Tick) -> TriedView:
    """Measures the fixes of a report without an edit."""
    if _is_option(script[0]):
        return TriedView(cannot_answer=_NO_SCRIPT)
    if report.startswith("-") or only.startswith("-"):
        return TriedView(cannot_answer="because report and only must not be options")
    words = ["try", "--report", report, "--budget", f"{budget_s:g}s", *(["--only", only] if only else []), *script]
    file = Path(report) / "report.json" if Path(report).is_dir() else Path(report)
    before = _stamp(file)
    # The budget is of measuring: starting and ending scripts comes on top.
    done = await children.run(words, 2 * budget_s + _READING_S, tick)
    again = "apply the fixes that were faster; for those not proven, try again with a larger budget_s"
    if done.status is None or _stamp(file) == before:
        why = done.why() if done.status != 0 else f"because {cut(done.out.decode('utf-8', 'replace'), 250)}"
        return TriedView(cut(report), cannot_answer=cut(why), next_step=_NOT_TRIED)
    tried = read_report(Path(report), baseline=False).tried or Tried()
    return bounded(
        TriedView(
            report=cut(report),
            trials=[_trial(one) for one in tried.trials],
            together=_trial(tried.together) if tried.together else None,
            next_step=again,
        )
    )


async def gate(base: str, head: str, tick: Tick) -> Gated:
    """The verdict on two stored reports."""
    if base.startswith("-") or head.startswith("-"):
        return Gated(cannot_answer="because base and head must be reports, not options")
    done = await children.run(["gate", "--format", "json", base, head], _READING_S, tick)
    if done.status not in _JUDGED or not done.out.strip():
        return Gated(cannot_answer=cut(done.why()), next_step="profile both versions, each into its own folder")
    found = msgspec.json.decode(done.out, type=Result)
    rows = [row for row in (*found.budgets, *found.counters) if row.status == "worse"]
    unsure = found.verdict in ("inconclusive", "not comparable")
    return bounded(
        Gated(
            verdict=found.verdict,
            reason=cut(found.reason),
            exit_code=found.exit_code,
            worse=_rows(rows),
            new_findings=_flags(found.new_findings),
            resolved_findings=_flags(found.gone_findings),
            notes=[cut(note) for note in found.notes[:_ROWS]],
            next_step="check the counters in worse and the new findings, then explain their rules"
            if found.verdict == "regression"
            else "this judges counters; for step time run `advisor gate --base REF -- SCRIPT`",
            cannot_answer=f"because {cut(found.reason)}" if unsure else None,
        )
    )


def _rows(rows: Sequence[Row]) -> list[Change]:
    return [Change(cut(row.id, 100), row.unit, _short(row.base), _short(row.head), row.status) for row in rows[:_ROWS]]


def _cause(cause: Cause) -> Change:
    return Change(cut(f"{cause.kind} {cause.name}", 100), cause.unit, _short(cause.base), _short(cause.head))


def _short(value: float | None) -> float | None:
    return None if value is None else digits(value)


def _flags(flags: Sequence[Flagged]) -> list[str]:
    return [cut(f"{flag.rule} {flag.where}: {flag.message}") for flag in flags[:_ROWS]]


def _trial(one: Trial) -> TrialView:
    return TrialView(
        rules=[cut(rule, 60) for rule in one.rules[:_ROWS]],
        title=cut(one.title, 200),
        verdict=one.verdict,
        gain_share=_short(one.gain),
        low_share=_short(one.low),
        high_share=_short(one.high),
        losses=one.numbers,
        why=cut(one.why, 200),
    )

"""Asks rules: which of them are asked, of a rank or of the whole job, and what each answers, whatever it does."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from advisor.analyses.base.step_ops import StepOps
from advisor.analyses.lines.call_paths import CallPaths
from advisor.analyses.lines.lines import Lines
from advisor.capture.record import RankRecord
from advisor.computed import Computed, Missing, needs, needs_in_all
from advisor.engine import framework_fixes
from advisor.engine.config import Config, known
from advisor.engine.registry import Rules
from advisor.engine.rule import Rule
from advisor.errors import UsageError
from advisor.model import Finding, Outcome, finding_order
from advisor.ranks.ranks import Ranks
from advisor.trace.events import Trace


def choose(rules: Rules, config: Config) -> list[Rule]:
    """The rules that the configuration leaves, after checking every id and threshold it names."""
    by_id = rules.by_id()
    ids = {*by_id, *(broken.rule for broken in rules.broken)}
    for name in (*config.select, *config.ignore, *config.thresholds):
        known(name, ids, "rule")
    for name, table in config.thresholds.items():
        for key, value in table.items() if name in by_id else ():
            known(key, by_id[name].thresholds, f"threshold of {name}")
            if _is_number(by_id[name].thresholds[key]) and not _is_number(value):
                where = config.path or "configuration"
                raise UsageError(f"{where}: threshold {key} of {name} must be a number, not {value!r}")
    return [r for r in rules.rules if (not config.select or r.id in config.select) and r.id not in config.ignore]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def of_job(rule: Rule) -> bool:
    """Whether a rule looks at all ranks of a job at once: its check asks for `Ranks`."""
    try:
        return any(kind is Ranks for kind, _ in needs(rule.check).values())
    except Exception:
        return False  # one whose annotations are broken is an error row of its own, as `apply` makes it


def apply(rule: Rule, computed: Computed, thresholds: object, ranks: int | tuple[int, ...] = 0) -> Outcome:
    """What one rule says of one trace, or of all ranks; nothing that a rule does reaches the others.

    ranks: those that a finding is about, where the rule does not name them itself.
    """
    about = (ranks,) if isinstance(ranks, int) else ranks
    base = Outcome(rule.id, "clear", title=rule.title, confirmed=bool(rule.confirmed), page=rule.page)
    try:
        options = dict(thresholds) if isinstance(thresholds, dict) else {}
        found = rule.check(**computed.arguments(rule.check), **options)
        findings = _placed(tuple(replace(f, ranks=f.ranks or about) for f in found), computed)
        lines = computed.find(Lines) if any(one.where for one in findings) else None
        findings = framework_fixes.worded(findings, computed.find(RankRecord), lines.holders if lines else ())
    except Missing as reason:
        return replace(base, status="skipped", reason=str(reason))
    except Exception as failure:
        return replace(base, status="error", reason=_one_line(failure))
    if not findings:
        unseen = _unseen(rule, computed)
        return replace(base, status="skipped", reason=unseen) if unseen else base
    return replace(base, status="found", findings=tuple(sorted(findings, key=lambda f: finding_order(rule.id, f))))


def _placed(findings: tuple[Finding, ...], computed: Computed) -> tuple[Finding, ...]:
    """The findings with the places that lead to theirs."""
    paths = computed.find(CallPaths) if any(one.where for one in findings) else None
    if paths is None:
        return findings
    # What lies between training steps is on none of the ways of the step.
    return tuple(one if one.run_us is not None else replace(one, where=paths.of(one.where)) for one in findings)


def _unseen(rule: Rule, computed: Computed) -> str:
    """Why silence of a rule that looks at ops says nothing: they are not in the trace. Empty where it tells."""
    trace = computed.find(Trace)
    if trace is None or not trace.without_ops or StepOps not in needs_in_all(rule.check):
        return ""
    return trace.without_ops


def ignored(rules: Rules, config: Config) -> Iterator[Outcome]:
    """An outcome for each rule that the configuration leaves out, with the reason that it gives."""
    for rule in rules.rules:
        if rule.id in config.ignore:
            reason = config.ignore[rule.id] or "no reason given"
            text = f"ignored by {config.path or 'the command line'}: {reason}"
            yield Outcome(rule.id, "skipped", reason=text, title=rule.title, confirmed=bool(rule.confirmed))


def _one_line(failure: BaseException) -> str:
    trace = failure.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    at = f" (line {trace.tb_lineno} of {trace.tb_frame.f_code.co_name})" if trace else ""
    return f"{type(failure).__name__}: {failure}".splitlines()[0] + at

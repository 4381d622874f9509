"""What `advisor try` measured on the user's machine, in words; where it measured, it outranks what was promised."""

from __future__ import annotations

from advisor.api import Finding, Fix, Report, Trial, Tried, trial_words

from . import _words

NUMBERS = {
    "equal": "losses bitwise equal",
    "within seeds": "losses differ by no more than between seeds",
    "outside seeds": "losses differ by more than between seeds",
    "not compared": "losses not compared",
}
VERDICTS = {
    "faster": "faster",
    "slower": "slower",
    "not proven": "no proven gain",
    "changes training": "changes the training",
    "no effect": "had no effect",
    "out of memory": "ran out of memory",
    "failed": "failed",
    "not tried": "not tried",
}

# Trials that ran to a result, so that losses were compared or could not be.
_COMPARED = ("faster", "slower", "not proven", "changes training")


def of(report: Report, finding: Finding) -> Trial | None:
    """The trial of this finding's fix that came to a result; None where there is none."""
    fix = finding.fix
    trials = report.tried.trials if report.tried and fix else ()
    return next((trial for trial in trials if fix and _is_of(trial, fix) and trial.verdict != "not tried"), None)


def _is_of(trial: Trial, fix: Fix) -> bool:
    """Whether the trial is one of this fix: with its treatment, or as the patch that is its edit."""
    if fix.treatment:
        return fix.treatment in trial.treatments
    return trial.title == fix.title and any(one.name == "patch" for one in trial.treatments)


def gain(trial: Trial) -> str:
    """`18 % of the step [15, 21]`, or ""."""
    if trial.gain is None or trial.low is None or trial.high is None:
        return ""
    return f"{100 * trial.gain:.1f} % of the step [{100 * trial.low:.1f}, {100 * trial.high:.1f}]"


def promised(trial: Trial) -> str:
    """The promise in the same unit, or ""."""
    if trial.promised_low is None or trial.promised_high is None:
        return ""
    return f"{_words.share_range(trial.promised_low, trial.promised_high)} of the step"


def said(trial: Trial) -> str:
    """The result in one phrase: `faster: 18 % of the step [15, 21], losses bitwise equal`."""
    parts = [part for part in (gain(trial), numbers(trial), trial.why) if part]
    return f"{VERDICTS[trial.verdict]}: {', '.join(parts)}" if parts else VERDICTS[trial.verdict]


def numbers(trial: Trial) -> str:
    """What its losses said, or ""."""
    return NUMBERS[trial.numbers] if trial.verdict in _COMPARED else ""


def base(tried: Tried) -> str:
    """The step of the script as it is, or "" where nothing was measured."""
    speed = next((trial.base for trial in tried.trials if trial.base), None)
    return trial_words.times(speed) if speed else ""


def beside(trial: Trial) -> list[str]:
    """Step times, changed counters, what the start costs; why there is no win; what the change did not reach."""
    missed = [f"not reached: {one}" for one in trial.missed] if trial.reached else []
    return [part for part in (trial.why, trial_words.details(trial), *missed) if part]


def memory(trial: Trial) -> str:
    """Memory more or less than the script takes as it is, or ""."""
    if not trial.memory_bytes or not trial.base_memory_bytes:
        return ""
    return f"{(trial.memory_bytes - trial.base_memory_bytes) / 1e6:+.0f} MB"

"""What was tried, as a table for the terminal: at most 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence

from advisor.model import Numbers, Trial, Tried
from advisor.report.trial_words import details, times
from advisor.trying.treatments import option

_WIDTH = 80
_COLUMNS = (19, 13, 24, 14)  # of verdict, prediction, measurement and numbers; memory takes the rest
_NUMBERS: dict[Numbers, str] = {
    "equal": "equal",
    "within seeds": "as by seeds",
    "outside seeds": "CHANGED",
    "not compared": "not compared",
}
_MEGA = 1e6

# How earlier predictions of rules held, in a phrase; nothing if there were none.
Earlier = Callable[[Sequence[str]], str]


def render(tried: Tried, earlier: Earlier = lambda rules: "") -> str:
    """The table, what it means, and what was not tried."""
    return "\n".join(_lines(tried, earlier)) + "\n"


def _lines(tried: Tried, earlier: Earlier) -> Iterator[str]:
    measured = [trial for trial in tried.trials if trial.verdict != "not tried"]
    yield from _about(tried, measured)
    if measured:
        yield ""
        yield _row(("", "predicted", "measured [95 %]", "losses", "memory"))
        for trial in measured:
            yield from _trial(trial)
            yield from _wrapped(earlier(trial.rules), "    ")
    if tried.together:
        yield "All proven changes together"
        yield from _trial(tried.together)
        for one in tried.contributions:
            yield from _wrapped(f"of this, {one.title} contributes {_gain(one)}", "  ")
    yield ""
    best = _best(tried, measured)
    if not measured:
        yield "No change was measured; raise --budget."
    elif best is None:
        yield from _wrapped("No proven gain: no measured change is faster than the unchanged script.", "")
    else:
        yield from _wrapped(
            f"Proven: {best.title} saves {_gain(best)} of a {'step' if best.work == 1 else 'sample'}.", ""
        )
        yield f"To measure it again: advisor try {' '.join(map(option, best.treatments))}"
    yield from untried(tried.trials)


def untried(trials: Sequence[Trial]) -> Iterator[str]:
    """Those that were not tried, each with its reason."""
    for trial in trials:
        if trial.verdict == "not tried":
            yield from _wrapped(f"not tried: {_name(trial)}: {trial.why}", "")


def _about(tried: Tried, measured: list[Trial]) -> Iterator[str]:
    base = next((trial.base for trial in measured if trial.base), None)
    step = f"a step of {times(base)}" if base else "a step"
    noise = f"; noise of a pair {tried.noise:.1%}" if tried.noise is not None else ""
    if measured:
        yield from _wrapped(f"Measured on this machine: shares of {step}{noise}", "")
    if tried.repeats is not None:
        said = "bitwise equal losses" if tried.repeats else "different losses: this script is not deterministic"
        yield f"Base against base, equal seeds: {said}"


def _trial(trial: Trial) -> Iterator[str]:
    yield from _wrapped(_name(trial), "")
    promised = _range(trial.promised_low, trial.promised_high)
    cells = (f"  {trial.verdict}", promised, _gain(trial), _NUMBERS[trial.numbers], _memory(trial))
    yield _row(cells)
    if trial.why:
        yield from _wrapped(trial.why, "    ")
    yield from _wrapped(details(trial), "    ")
    for missed in trial.missed if trial.reached else ():
        yield from _wrapped(f"not reached: {missed}", "    ")


def _best(tried: Tried, measured: list[Trial]) -> Trial | None:
    """The proven changes together, else the best of them alone."""
    if tried.together and tried.together.verdict == "faster":
        return tried.together
    wins = [trial for trial in measured if trial.verdict == "faster"]
    return max(wins, key=lambda trial: trial.gain or 0.0, default=None)


def _name(trial: Trial) -> str:
    return f"{trial.title} ({', '.join(trial.rules)})" if trial.rules else trial.title


def _gain(trial: Trial) -> str:
    if trial.gain is None or trial.low is None or trial.high is None:
        return "-"
    return f"{100 * trial.gain:.1f} % [{100 * trial.low:.1f}, {100 * trial.high:.1f}]"


def _range(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "-"
    return f"{100 * low:.0f} to {100 * high:.0f} %"


def _memory(trial: Trial) -> str:
    if not trial.memory_bytes or not trial.base_memory_bytes:
        return "-"
    return f"{(trial.memory_bytes - trial.base_memory_bytes) / _MEGA:+.0f} MB"


def _row(cells: tuple[str, ...]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, _COLUMNS, strict=False)]
    return "".join([*padded, cells[-1]]).rstrip()


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False)

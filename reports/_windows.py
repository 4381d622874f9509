"""Several windows of one run, in words: what each took, and what moved since the first."""

from __future__ import annotations

from advisor.api import Moved, ProfiledWindow, Report, dataclass

from . import _labels, _words

_WHY = {
    "first": "the first window",
    "every": "by --every",
    "asked": "asked for",
    "slower": "steps became slower",
    "elsewhere": "training moved to another loop",
}
# Of what moved, the first few say it; the rest is in report.json. A line says more than the part that it lies in.
_SAID, _ORDER = 4, {"line": 0, "part": 1, "op": 2}
# A difference that the clock of a machine makes of equal steps.
_LEAST_CHANGE = 0.1
ALIKE = "about the same as at first"


@dataclass(frozen=True, slots=True)
class Row:
    """A window as the tables show it. change: against the first; moved: (what, before, after), the largest first."""

    at: str
    why: str
    step: str
    change: str
    moved: tuple[tuple[str, str, str], ...]


def rows(report: Report) -> tuple[Row, ...]:
    """All windows in their order; none where there is only one."""
    return tuple(_row(window, report.windows[0]) for window in report.windows)


def _row(window: ProfiledWindow, first: ProfiledWindow) -> Row:
    most = sorted(window.moved, key=lambda one: -abs(one.after_us - one.before_us))
    chosen = sorted(most, key=lambda one: _ORDER.get(one.kind, len(_ORDER)))[:_SAID]
    return Row(
        f"after step {_words.count(window.at)}",
        _WHY.get(window.why, _words.one_line(window.why)),
        _words.time(window.step_us),
        "" if window is first else _change(window.step_us, first.step_us),
        tuple(_said(one) for one in sorted(chosen, key=lambda one: -abs(one.after_us - one.before_us))),
    )


def _change(step_us: float, first_us: float) -> str:
    ratio = step_us / first_us - 1 if first_us else 0.0
    if abs(ratio) < _LEAST_CHANGE:
        return ALIKE
    return f"{_words.share(abs(ratio))} {'longer' if ratio > 0 else 'shorter'} than at first"


def _said(moved: Moved) -> tuple[str, str, str]:
    name = _labels.part(moved.name).name if moved.kind == "part" else _words.short(moved.name)
    calls = ""
    if moved.kind == "op" and abs(moved.after_calls - moved.before_calls) >= 1:
        calls = f" ({_words.count(moved.before_calls)} to {_words.count(moved.after_calls)} calls)"
    return f"{name}{calls}", _words.time(moved.before_us), _words.time(moved.after_us)


def how(report: Report) -> str:
    """What the figures are of."""
    later = len(report.windows) - 1
    return (
        f"{_words.plural(later, 'later window')} of this run {'was' if later == 1 else 'were'} profiled. Step times "
        "are medians of steps without the profiler just before each window; lines and ops are those in the window. "
        "All other figures in this report are from the first; `advisor analyze FOLDER --window N` reports on the Nth."
    )

"""Where the whole run went, in words: beside the step, which is a part of it."""

from __future__ import annotations

from advisor.api import Report, RunAccount, RunLine, RunPart, Source, dataclass

from . import _labels, _words

# The headline names what takes so much of the run after its start, beside the training steps.
_WORTH_NAMING = 0.20
# Parts that are said in a line of text.
_SAID_SHARE = 0.01
_OUTSIDE = ("startup", "end")


@dataclass(frozen=True, slots=True)
class Row:
    """A part of the run as the tables show it.

    share: of the time after start-up, as rules count it; "" of start-up itself and of what follows the last step.
    lines: (place, its share, most of it at).
    """

    name: str
    share: str
    time: str
    times: str
    lines: tuple[tuple[str, str, str], ...]


def beside_steps(report: Report) -> str:
    """One sentence where the step is not what the run goes to; else ""."""
    account = report.account
    if account is None:
        return ""
    loop_us = in_loop_us(account)
    others = [part for part in account.parts if part.id not in (*_OUTSIDE, "training")]
    largest = max(others, key=lambda part: part.us, default=None)
    if largest is None or not loop_us or largest.us < _WORTH_NAMING * loop_us:
        return ""
    at = f" ({_at(largest.lines[0].source)})" if largest.lines else ""
    what = _words.short(_labels.run_part(largest.id).name)
    share = _words.share(largest.us / loop_us)
    return f"{share} of the run after start-up goes to {what[:1].lower()}{what[1:]}{at}, not to training steps."


def in_loop_us(account: RunAccount) -> float:
    """Time between start-up and the last training step, µs: what shares of the run are of."""
    return sum(part.us for part in account.parts if part.id not in _OUTSIDE)


def summary(report: Report) -> str:
    """The parts of the run in a line: 3.1 s start-up; 40 s with 90 training steps: 76 % training steps, 21 % …"""
    account = report.account
    if account is None:
        return ""
    loop_us = in_loop_us(account)
    before, after = (
        [
            _said(part, _words.time(part.us))
            for part in account.parts
            if part.id == name and _is_notable(part, account.us)
        ]
        for name in _OUTSIDE
    )
    inside = [
        _said(part, _words.share(part.us / loop_us))
        for part in sorted(account.parts, key=lambda part: -part.us)
        if part.id not in _OUTSIDE and _is_notable(part, loop_us)
    ]
    steps = f"{_words.time(loop_us)} with {_words.plural(account.steps, 'training step')}"
    loop = f"{steps}: {', '.join(inside)}" if inside else steps
    return f"Where the run goes: {'; '.join([*before, loop, *after])}"


def _is_notable(part: RunPart, of_us: float) -> bool:
    return 0 < part.us >= _SAID_SHARE * of_us


def _said(part: RunPart, amount: str) -> str:
    name = _labels.run_part(part.id).name
    at = f" ({_at(part.lines[0].source)})" if part.lines and part.id != "training" else ""
    return f"{amount} {name[:1].lower()}{name[1:]}{at}"


def rows(account: RunAccount) -> tuple[Row, ...]:
    """All parts, in the order of the run."""
    loop_us = in_loop_us(account)
    return tuple(
        Row(
            _labels.run_part(part.id).name,
            _words.share(part.us / loop_us) if part.id not in _OUTSIDE and loop_us else "",
            _words.time(part.us),
            _words.count(part.times) if part.times else "",
            tuple(_line(line, part, loop_us) for line in part.lines),
        )
        for part in account.parts
    )


def how(account: RunAccount) -> str:
    """What the figures are of, and how they were taken."""
    text = (
        f"{_words.time(account.us)} of the run were watched, with {_words.plural(account.steps, 'training step')}. "
        f"A clock separates training steps from the time between them; {_words.plural(account.sampled, 'sample')} of "
        "the loop's stack show what that was. Shares are of the time between start-up and the last step."
    )
    if account.ours_us > 0:
        text += f" {_words.time(account.ours_us)} under the profiler are left out."
    return text


def _line(line: RunLine, part: RunPart, loop_us: float) -> tuple[str, str, str]:
    share = _words.time(line.us) if part.id in _OUTSIDE or not loop_us else _words.share(line.us / loop_us)
    return _at(line.source), share, _at(line.inner) if line.inner else ""


def _at(source: Source) -> str:
    return f"{_words.path(source.file)}:{source.line}"

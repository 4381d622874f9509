"""Where the whole run went, in words: beside the step, which is a part of it."""

from __future__ import annotations

from advisor.api import Report, RunAccount, RunLine, RunPart, Source, dataclass

from . import _labels, _words

# The headline names what takes so much of the run after its start, beside the training steps.
_WORTH_NAMING = 0.20
# Parts that are said in a line of text.
_SAID_SHARE = 0.01


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
    others = [(part.share, part) for part in account.parts if part.share is not None and part.id != "training"]
    most, largest = max(others, key=lambda one: one[0], default=(0.0, None))
    if largest is None or most < _WORTH_NAMING:
        return ""
    at = f" ({_at(largest.lines[0].source)})" if largest.lines else ""
    what = _words.short(_labels.run_part(largest.id).name)
    what = f"{what[:1].lower()}{what[1:]}{at}"
    return f"{_words.share(most)} of the run after start-up goes to {what}, not to training steps."


def summary(report: Report) -> str:
    """The parts of the run in a line: 3.1 s start-up; 40 s with 90 training steps: 76 % training steps, 21 % …"""
    account = report.account
    if account is None:
        return ""
    before, after = (
        [
            _said(part, _words.time(part.us))
            for part in account.parts
            if part.id == name and part.us >= _SAID_SHARE * account.us
        ]
        for name in ("startup", "end")
    )
    inside = [
        _said(part, _words.share(part.share))
        for part in sorted(account.parts, key=lambda part: -part.us)
        if part.share is not None and part.share >= _SAID_SHARE
    ]
    steps = f"{_words.time(account.loop_us)} with {_words.plural(account.steps, 'training step')}"
    loop = f"{steps}: {', '.join(inside)}" if inside else steps
    return f"Where the run goes: {'; '.join([*before, loop, *after])}"


def _said(part: RunPart, amount: str) -> str:
    name = _labels.run_part(part.id).name
    at = f" ({_at(part.lines[0].source)})" if part.lines and part.id != "training" else ""
    return f"{amount} {name[:1].lower()}{name[1:]}{at}"


def rows(account: RunAccount) -> tuple[Row, ...]:
    """All parts, in the order of the run."""
    return tuple(
        Row(
            _labels.run_part(part.id).name,
            "" if part.share is None else _words.share(part.share),
            _words.time(part.us),
            _words.count(part.times) if part.times else "",
            tuple(_line(line, part, account.loop_us) for line in part.lines),
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
    share = _words.time(line.us) if part.share is None else _words.share(line.us / loop_us)
    return _at(line.source), share, _at(line.inner) if line.inner else ""


def _at(source: Source) -> str:
    return f"{_words.path(source.file)}:{source.line}"

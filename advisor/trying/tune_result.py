"""What `advisor tune` found: as text, as data, and as a page with the curve of batch sizes."""

from __future__ import annotations

import html
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.fixing import framework_calls
from advisor.fixing.edits import NoEditError, edit
from advisor.fixing.patches import diff_of, text_of
from advisor.model import Treatment, Trial
from advisor.report.trial_words import details
from advisor.trying.knobs import words_of
from advisor.trying.treatments import option
from advisor.trying.tuning import Point

_SIZES = re.compile(r"batch size (\d+) instead of (\d+)")
_WIDTH, _HEIGHT, _LEFT, _BELOW = 640, 300, 70, 40


@dataclass(frozen=True, slots=True)
class Tuned:
    """chosen: the setting; trial: its fresh measurement, None where nothing was faster; seconds: all that it took."""

    chosen: Point
    trial: Trial | None
    points: tuple[Point, ...]
    curve: tuple[Point, ...]
    banned: dict[str, str]
    seconds: float

    @property
    def proven(self) -> bool:
        """Whether fresh pairs confirm it."""
        return self.trial is not None and self.trial.verdict == "faster"

    def sizes(self) -> tuple[int, int] | None:
        """The batch size of the setting and the script's own."""
        found = next((found for text in self.chosen.reached if (found := _SIZES.search(text))), None)
        return (int(found[1]), int(found[2])) if found else None


def as_text(tuned: Tuned, script: Path | None) -> Iterator[str]:
    """The setting, its gain, the curve, the lines to change, and what a larger batch asks for."""
    yield f"{len(tuned.points)} settings measured in {tuned.seconds / 60:.1f} min"
    yield from _of_curve(tuned)
    for name, why in tuned.banned.items():
        yield from _wrapped(f"left out: {name}: {why}", "")
    trial = tuned.trial
    if not tuned.points:
        yield "The budget was spent before a setting could be measured; raise --budget."
        return
    if trial is None and tuned.chosen.setting:
        name, speed = words_of(tuned.chosen.setting), tuned.chosen.speed
        yield f"Stopped early. Best so far, not confirmed: {name}, {speed:.3g} times as fast"
        return
    if trial is None:
        yield "No setting is faster than the unchanged script by more than the noise."
        return
    yield ""
    yield f"Setting: {trial.title}"
    if trial.gain is None or trial.low is None or trial.high is None:
        yield from _wrapped(f"not confirmed: {trial.verdict}: {trial.why}", "  ")
        return
    words = "proven" if tuned.proven else f"{trial.verdict}, so nothing is recommended"
    yield from _wrapped(
        f"compared with the current setting, {trial.pairs} new pairs: each sample takes {100 * trial.gain:.1f} % "
        "less time "
        f"[{100 * trial.low:.1f}, {100 * trial.high:.1f}], {1 / (1 - trial.gain):.3g} times as fast: {words}",
        "  ",
    )
    yield from (line for part in details(trial).split("; ") for line in _wrapped(part, "  "))
    if not tuned.proven:
        return
    yield f"  to measure it again: advisor try {' '.join(map(option, trial.treatments))}"
    yield from (f"  {line}" for line in learning_rate(tuned.sizes()))
    diff, left = lines_to_change(tuned, script)
    yield from ("", "Lines to change:", diff.rstrip()) if diff else ()
    yield from (line for text in left for line in _wrapped(f"by hand: {text}", ""))


def _wrapped(text: str, indent: str) -> list[str]:
    """Lines for a terminal of 80 columns; commands and diffs are not wrapped, because they are copied."""
    return textwrap.wrap(text, 80, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False)


def _of_curve(tuned: Tuned) -> Iterator[str]:
    if len(tuned.curve) < 2:
        return
    yield f"Batch size{_others(tuned.chosen)} and samples/s:"
    for one in tuned.curve:
        size = f"x {one.setting.get('batch', '1')}"
        if one.ratio is None:
            yield from _wrapped(f"{size:>6}  {one.why}", "  ")
        else:
            mark = "  <- chosen setting" if one.setting == tuned.chosen.setting else ""
            yield f"  {size:>6}  {_rate(one):>8}  {one.speed:.3g} times as fast{mark}"


def _others(point: Point) -> str:
    others = {name: label for name, label in point.setting.items() if name != "batch"}
    return f" (with {words_of(others)})" if others else ""


def _rate(point: Point) -> str:
    return f"{point.samples_per_s:,.0f}" if point.samples_per_s else "-"


def learning_rate(sizes: tuple[int, int] | None) -> list[str]:
    """What a larger batch asks for; the tuner measures speed, and nothing of this."""
    if sizes is None or sizes[0] <= sizes[1]:
        return []
    times = sizes[0] / sizes[1]
    return [
        f"A batch {times:.3g} times as large means {times:.3g} times fewer updates per epoch.",
        f"Usual starting points: the learning rate times {times:.3g} for SGD, with a warm-up,",
        f"and times {math.sqrt(times):.3g} for Adam. Divide the lengths of schedules and warm-ups that",
        f"count steps by {times:.3g}. Model quality was not measured.",
    ]


def lines_to_change(tuned: Tuned, script: Path | None) -> tuple[str, list[str]]:
    """A diff of the script, and the treatments that it does not hold, each with the reason."""
    if script is None or tuned.trial is None:
        return "", []
    sizes, left = tuned.sizes(), []
    before: str | None = None
    after: str | None = None
    for one in tuned.trial.treatments:
        wanted = Treatment("batch", {"size": sizes[0]}) if one.name == "batch" and sizes else one
        try:
            before = before or text_of(script)
            after = edit(after or before, (), _in_script(after or before, wanted))
        except NoEditError as failure:
            left.append(f"{option(wanted).removeprefix('--with ')} ({failure})")
    if before is None or after is None:
        return "", left
    return diff_of(script, before, after), left


def _in_script(text: str, wanted: Treatment) -> Treatment:
    """The change as an argument of a framework's class that the script names, where it has one for it."""
    own = (one for one in framework_calls.of_all(wanted) if any(f"{name}(" in text for name in one.names))
    return next((one.edit for one in own if one.packages[0] in text), wanted)


def as_data(tuned: Tuned) -> dict[str, Any]:
    """For a file of JSON."""
    trial = tuned.trial
    return {
        "schema": "torch-advisor-tune",
        "version": 1,
        "setting": tuned.chosen.setting,
        "batch_sizes": tuned.sizes(),
        "proven": tuned.proven,
        "gain": trial.gain if trial else None,
        "interval": [trial.low, trial.high] if trial else None,
        "pairs": trial.pairs if trial else 0,
        "treatments": [{"name": one.name, "arguments": one.arguments} for one in trial.treatments] if trial else [],
        "points": [
            {"setting": one.setting, "speed": one.speed if one.ratio is not None else None, "why": one.why}
            for one in tuned.points
        ],
        "curve": [
            {"batch": int(one.setting.get("batch", "1")), "speed": one.speed if one.ratio is not None else None}
            for one in tuned.curve
        ],
        "left_out": tuned.banned,
        "seconds": tuned.seconds,
    }


def as_page(tuned: Tuned, text: str) -> str:
    """One page without scripts: the text of the terminal, the curve, and all settings."""
    rows = "".join(
        f"<tr><td>{html.escape(words_of(one.setting))}</td>"
        f"<td>{f'{one.speed:.3g}' if one.ratio is not None else html.escape(one.why)}</td></tr>"
        for one in sorted(tuned.points, key=lambda one: -one.speed)
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>advisor tune</title>'
        "<style>body{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}pre{white-space:pre-wrap}"
        "td,th{padding:.2rem 1rem .2rem 0;text-align:left}</style>"
        f"<h1>Tuned on this machine</h1><pre>{html.escape(text)}</pre>{_drawn(tuned.curve, tuned.chosen)}"
        "<h2>All settings</h2><table><tr><th>Setting</th><th>Speed relative to the current setting</th></tr>"
        f"{rows}</table></html>\n"
    )


def _drawn(curve: Sequence[Point], chosen: Point) -> str:
    """Speed over the batch size, which doubles from one mark to the next."""
    known = [one for one in curve if one.ratio is not None]
    if len(known) < 2:
        return ""
    most = max(one.speed for one in known)
    steps = math.log2(max(int(one.setting.get("batch", "1")) for one in known)) or 1.0
    dots, marks = [], []
    for one in known:
        size = int(one.setting.get("batch", "1"))
        x = _LEFT + math.log2(size) / steps * (_WIDTH - 2 * _LEFT)
        y = _HEIGHT - _BELOW - one.speed / most * (_HEIGHT - 2 * _BELOW)
        radius = 7 if one.setting == chosen.setting else 4
        dots.append(f"{x:.1f},{y:.1f}")
        marks.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/><text x="{x:.1f}" y="{y - 12:.1f}" '
            f'text-anchor="middle">{one.speed:.3g}</text><text x="{x:.1f}" y="{_HEIGHT - 12}" '
            f'text-anchor="middle">x {size}</text>'
        )
    return (
        f'<h2>Batch size</h2><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'aria-label="Speed relative to the current setting, by batch size"><polyline fill="none" stroke="currentColor" '
        f'points="{" ".join(dots)}"/>{"".join(marks)}</svg>'
        "<p>Speed per sample relative to the current setting, by batch size; the large dot is the chosen setting.</p>"
    )

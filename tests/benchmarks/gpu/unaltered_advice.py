"""Real traces, and the same traces changed in what they do not say: what is told of each, where it differs.

    python tests/benchmarks/gpu/unaltered_advice.py TRACE…

Prints one line for each change that changed something. Where a form lacks what a rule needs, a difference may be right.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "support"))

from altered_traces import FORMS, SAME, forward_only
from drawn_loops import report

from advisor.model import Report

_CLOSE = 0.01  # of a figure, plus as much of a percent of the step


def told(report_of: Report) -> dict[str, tuple[float, ...]]:
    """What a report says, as figures in µs: the step, its parts, and each finding's saving."""
    figures: dict[str, tuple[float, ...]] = {"step": (report_of.step_us or 0.0, float(report_of.steps.count))}
    for item in report_of.breakdown:
        figures[f"part {item.id}"] = (item.us,)
    for outcome, finding in report_of.findings():
        saving = finding.saving
        name = f"finding {outcome.rule}"
        while name in figures:
            name += "'"
        figures[name] = (saving.low_us, saving.high_us) if saving else (-1.0,)
    return figures


def differences(before: dict[str, tuple[float, ...]], after: dict[str, tuple[float, ...]]) -> list[str]:
    """Figures that are not the same in both."""
    step_us, found = before["step"][0], []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old is None or new is None or len(old) != len(new):
            if max(old or new or (0.0,)) != 0.0:
                found.append(f"{name}: {_shown(old)} -> {_shown(new)}")
        elif any(abs(a - b) > _CLOSE * abs(a) + _CLOSE / 10 * step_us for a, b in zip(old, new, strict=True)):
            found.append(f"{name}: {_shown(old)} -> {_shown(new)}")
    return found


def _shown(figures: tuple[float, ...] | None) -> str:
    return "nothing" if figures is None else "/".join(f"{one:.0f}" for one in figures)


def main() -> int:
    """The command."""
    for path in map(Path, sys.argv[1:]):
        document = json.loads((gzip.open if path.suffix == ".gz" else open)(path).read())
        before = told(report(json.dumps(document).encode()))
        print(path.name, {name: _shown(one) for name, one in before.items() if not name.startswith("part")}, flush=True)
        for alteration in (*SAME, *FORMS):
            after = told(report(json.dumps(alteration.of(document)).encode()))
            for line in differences(before, after):
                print(f"  {alteration.name}: {line}", flush=True)
        forward = forward_only(document)
        if len(forward["traceEvents"]) < len(document["traceEvents"]):
            said = told(report(json.dumps(forward).encode()))
            print(
                "  forward only:", {name: _shown(one) for name, one in said.items() if "part" not in name}, flush=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())

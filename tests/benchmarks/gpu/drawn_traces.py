"""What is said of the drawn jobs of `drawn_jobs/`, beside what the same jobs take without their faults.

    python tests/benchmarks/gpu/drawn_traces.py [NAME …]

Nothing of this was measured on a GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "support")]

from drawn_jobs import (  # noqa: E402
    eighteenth_set,
    eighth_set,
    eleventh_set,
    fifteenth_set,
    fourteenth_set,
    nineteenth_set,
    ninth_set,
    seventeenth_set,
    seventh_set,
    sixteenth_set,
    tenth_set,
    thirteenth_set,
    thirtieth_set,
    thirty_fifth_set,
    thirty_first_set,
    thirty_fourth_set,
    thirty_second_set,
    thirty_third_set,
    twelfth_set,
    twentieth_set,
    twenty_eighth_set,
    twenty_fifth_set,
    twenty_first_set,
    twenty_fourth_set,
    twenty_ninth_set,
    twenty_second_set,
    twenty_seventh_set,
    twenty_sixth_set,
    twenty_third_set,
)
from drawn_loops import report  # noqa: E402

_SETS = (
    *(seventh_set, eighth_set, ninth_set, tenth_set, eleventh_set, twelfth_set, thirteenth_set, fourteenth_set),
    *(fifteenth_set, sixteenth_set, seventeenth_set, eighteenth_set, nineteenth_set, twentieth_set),
    *(twenty_first_set, twenty_second_set, twenty_third_set, twenty_fourth_set, twenty_fifth_set),
    twenty_sixth_set,
    twenty_seventh_set,
    twenty_eighth_set,
    twenty_ninth_set,
    thirtieth_set,
    thirty_first_set,
    thirty_second_set,
    thirty_third_set,
    thirty_fourth_set,
    thirty_fifth_set,
)


def main() -> int:
    """The command."""
    for drawn, job in ((kept, job) for kept in _SETS for job in kept.JOBS):
        if sys.argv[1:] and job.name not in sys.argv[1:]:
            continue
        slow, fast = drawn.run(job), drawn.run(job, fixed=True)
        told = report(slow.trace())
        gain = (slow.step_us() - fast.step_us()) / 1e3
        print(f"\n{job.name}: {job.truth}; {slow.step_us() / 1e3:.2f} ms, {gain:.2f} of it to gain", job.rules)
        shares = {item.id: round(item.share, 3) for item in told.breakdown if item.share > 0.005}
        print(f"  told: a step of {(told.step_us or 0) / 1e3:.2f} ms, {told.steps.count} steps, {shares}")
        print("  notes:", ", ".join(item.id for item in told.health))
        for outcome, finding in told.findings():
            saving = finding.saving and f"{finding.saving.low_us / 1e3:.2f} to {finding.saving.high_us / 1e3:.2f} ms"
            print(f"  - {outcome.rule}: {finding.message} [{saving}] {finding.fix.title if finding.fix else ''}")
        if job.rules:
            named = [finding.saving for outcome, finding in told.findings() if outcome.rule in job.rules]
            most = sum(saving.high_us for saving in named if saving) / 1e3
            below = "" if most >= gain else ", below it"
            print(f"  high ends of what names the fault: {most:.2f} of {gain:.2f} ms{below}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Step time of head against base: self-test, pairs, the sequential test, and the explanation of what was found."""

from __future__ import annotations

import math
import random
import signal
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from advisor.gate import pairs, sequential, verdict
from advisor.gate.config import GateConfig
from advisor.gate.difference import MOST_OF_A_KIND, causes
from advisor.gate.model import Result, StepTime
from advisor.gate.moved_lines import changed_lines
from advisor.gate.pairs import Mode, Pair, Side
from advisor.gate.profile import profile
from advisor.gate.sequential_design import SequentialDesign
from advisor.gate.stored import findings_changed
from advisor.model import Report

Say = Callable[[str], None]


def run(  # noqa: PLR0913 - what a comparison is made of
    base: Side,
    head: Side,
    config: GateConfig,
    say: Say,
    *,
    root: Path | None = None,
    mode: Mode | None = None,
    explain: bool = True,
    rng: random.Random | None = None,
) -> Result:
    """The verdict on head against base. root: the user's repository, from which no side may import.

    Raises GateError (4) where a side fails or has too few steps.
    """
    began = time.monotonic()
    end_in_order()
    limits = config.step_time
    seen = [pairs.look(side, limits.warmup, root) for side in (base, head)]
    for side, one in zip((base, head), seen, strict=True):
        if one.strays:
            text = f"the {side.name} imports {Path(one.strays[0]).name} from the working tree, not from its own copy"
            return Result(
                "not comparable", f"{text}; install it non-editable, or use --base-command", base.label, head.label
            )
    if seen[0].source != seen[1].source:
        text = f"steps are detected by {seen[0].source} in the base and by {seen[1].source} in the head"
        return Result("not comparable", text, base.label, head.label)
    layout = pairs.settle(seen, limits.steps, limits.warmup, mode)
    measured = _Series(base, head, layout, rng or random.Random(), say)
    alone = [
        measured.next_pair(base, base, f"self-test {n + 1} of {limits.self_test}") for n in range(limits.self_test)
    ]
    decided = sequential.run(measured.next_ratio, config.design, [pair.ratio for pair in alone])
    step_time = _step_time(decided, measured.given, alone, config.design, layout, time.monotonic() - began)
    disturbed = verdict.of_clocks(measured.given, layout.mode)
    final, reason = verdict.combine(disturbed or [verdict.of_step_time(step_time)])
    notes = tuple(_notes(step_time, alone, measured.given))
    result = Result(final, reason, base.label, head.label, step_time=step_time, notes=notes)
    return _explained(result, base, head, say) if explain and _worth_explaining(step_time) else result


def end_in_order() -> None:
    """A cancelled job sends SIGTERM, a terminal that is closed SIGHUP: both must end what was started and remove the
    worktrees, as Ctrl-C does. A signal that is ignored (`nohup`) stays ignored.
    """

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        return
    for number in (getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


class _Series:
    """Measures pair after pair and remembers them."""

    def __init__(self, base: Side, head: Side, layout: pairs.Layout, rng: random.Random, say: Say) -> None:
        self.base, self.head, self.layout, self.rng, self.say = base, head, layout, rng, say
        self.given: list[Pair] = []

    def next_ratio(self) -> float:
        """The log ratio of one more pair."""
        self.given.append(self.next_pair(self.base, self.head, f"pair {len(self.given) + 1}"))
        return self.given[-1].ratio

    def next_pair(self, base: Side, head: Side, name: str) -> Pair:
        """One pair, told as it comes."""
        pair = pairs.measure(base, head, self.layout, self.rng)
        self.say(f"{name}: {math.expm1(pair.ratio):+.1%}")
        return pair


def _step_time(
    decided: sequential.Look,
    given: Sequence[Pair],
    alone: Sequence[Pair],
    design: SequentialDesign,
    layout: pairs.Layout,
    seconds: float,
) -> StepTime:
    known = given or alone
    return StepTime(
        decision=decided.decision,
        change=decided.change,
        low=decided.low,
        high=decided.high,
        pairs=decided.pairs,
        noise=decided.noise,
        detectable=decided.detectable,
        margin=design.margin,
        tolerance=design.tolerance,
        base_us=statistics.median(pair.base_us for pair in known),
        head_us=statistics.median(pair.head_us for pair in known),
        mode=layout.mode,
        further_pairs=decided.further_pairs,
        self_test_noise=math.expm1(sequential.noise_floor([pair.ratio for pair in alone])) if alone else None,
        confirmed=decided.confirmed,
        mean_change=math.expm1(statistics.median(pair.mean_ratio for pair in given)) if given else None,
        steps_per_pair=sum(pair.turns * pair.steps_per_turn for pair in known) // len(known),
        seconds=seconds,
    )


# The tail has changed where mean and median disagree by more than this: the design's own limit for naming it.
_TAIL = 0.10


def _notes(result: StepTime, alone: Sequence[Pair], given: Sequence[Pair]) -> list[str]:
    said = []
    if held := sum(pair.held for pair in (*alone, *given)):
        said.append(
            f"thermal or power throttling reduced a clock during {held} of {len(alone) + len(given)} pairs: cool the "
            "machine"
        )
    if result.self_test_noise is not None:
        shown = ", ".join(f"{math.expm1(pair.ratio):+.1%}" for pair in alone)
        said.append(f"self-test, base against base: {shown}; noise {result.self_test_noise:.1%} per pair")
    if not result.pairs:
        said.append("the comparison was not started: this machine is too noisy; use a quieter one, or counters")
    if result.mean_change is not None and abs((1 + result.mean_change) / (1 + result.change) - 1) > _TAIL:
        said.append(f"the mean step changed by {result.mean_change:+.1%}: long steps differ, check the tail")
    if result.confirmed is False:
        said.append(
            "the first series of pairs showed a regression near the margin, but a second one did not confirm it"
        )
    return said


def _worth_explaining(result: StepTime) -> bool:
    moved = abs(result.change) > result.margin and (result.low > 0 or result.high < 0)
    return result.pairs > 0 and (result.decision == "regression" or moved)


def _explained(result: Result, base: Side, head: Side, say: Say) -> Result:
    """The result with what two profiles, one of each side, hold against each other."""
    reports: list[Report] = []
    for side in (base, head):
        say(f"profiling the {side.name} to see why")
        try:
            reports.append(profile(side.command, side.folder, dict(side.env)))
        except Exception as failure:
            # The verdict stands without its explanation.
            return replace(result, notes=(*result.notes, f"no explanation: {str(failure).splitlines()[0]}"))
    new, gone = findings_changed(*reports)
    step_us = result.step_time.base_us if result.step_time else 0.0
    lines = changed_lines(reports[0], reports[1], base.folder, head.folder, step_us)
    why = (*lines[:MOST_OF_A_KIND], *causes(*reports))
    return replace(result, causes=why, new_findings=tuple(new), gone_findings=tuple(gone))

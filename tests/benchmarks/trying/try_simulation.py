"""Simulates many sessions of `advisor try` on code without any gain: how often anything at all is called faster.

Every session is the real test (`advisor.trying.decide`), self-test and looks included; only the pairs are drawn, from
the kinds of noise of `gate_simulation.py`. One line per kind, size and number of changes:

    python tests/benchmarks/trying/try_simulation.py --sessions 10000
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from advisor.gate.sequential import noise_floor
from advisor.trying.decide import Design, Judged, confirm, judge

sys.path.append(str(Path(__file__).parents[1] / "gate"))

from gate_simulation import KINDS, upper_bound


def pairs_of(kind: str, sigma: float, rng: np.random.Generator) -> Iterator[float]:
    """Log ratios without end: a series of the kind follows the other."""
    return itertools.chain.from_iterable(KINDS[kind](rng, sigma) for _ in itertools.count())


def one_change(pairs: Iterator[float], gain: float, design: Design, floor: float) -> Judged:
    """A change that saves this share, looked at until the test decides."""
    ratios: list[float] = []
    for look in design.looks:
        ratios += [math.log1p(-gain) + next(pairs) for _ in range(look - len(ratios))]
        judged = judge(ratios, design, floor)
        if judged.final:
            break
    if judged.verdict != "faster" or judged.clear:
        return judged
    fresh = [math.log1p(-gain) + next(pairs) for _ in range(design.confirmation)]
    return confirm(ratios, fresh, design, floor)


def simulate(kind: str, sigma: float, tests: int, sessions: int, gain: float) -> dict[str, object]:
    """Sessions in which any change is called faster; of a true gain, changes that are, and intervals that hold it."""
    rng = np.random.default_rng([list(KINDS).index(kind), round(sigma * 1e4), tests, round(gain * 1e4)])
    design, any_win, wins, held = Design(tests), 0, 0, 0
    for _ in range(sessions):
        pairs = pairs_of(kind, sigma, rng)
        floor = noise_floor([next(pairs) for _ in range(4)])
        found = [one_change(pairs, gain, design, floor) for _ in range(tests)]
        any_win += any(one.verdict == "faster" for one in found)
        wins += sum(one.verdict == "faster" for one in found)
        held += sum(one.low <= gain <= one.high for one in found)
    changes = sessions * tests
    return {
        "noise": kind, "pair_noise": sigma, "changes": tests, "true_gain": gain, "sessions": sessions,
        "any_called_faster": any_win / sessions, "upper_95": upper_bound(any_win, sessions),
        "called_faster": wins / changes, "interval_holds_it": held / changes,
    }  # fmt: skip


def main() -> None:
    """Prints one JSON line per cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--kind", action="append", choices=sorted(KINDS))
    parser.add_argument("--sigma", action="append", type=float)
    parser.add_argument("--gain", action="append", type=float)
    parser.add_argument("--changes", action="append", type=int)
    args = parser.parse_args()
    cells = itertools.product(
        args.kind or KINDS, args.sigma or (0.01, 0.03, 0.1), args.changes or (1, 4, 12), args.gain or (0.0,)
    )
    for kind, sigma, tests, gain in cells:
        sys.stdout.write(json.dumps(simulate(kind, sigma, tests, args.sessions, gain)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

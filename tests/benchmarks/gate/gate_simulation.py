"""Simulates many gates on noise of known kind: how often the sequential test cries wolf, finds, or passes in silence.

Every gate is the real `advisor.gate.sequential.run`, self-test and confirmation included; only the pairs are drawn.
One line per kind of noise, its size and the true change:

    python tests/benchmarks/gate/gate_simulation.py --gates 10000 > simulation.jsonl

The noise of a pair (its standard deviation) is given as a share of the step. Order within a pair is random, as in a
real gate, so drift and slow swings of the machine reach a pair with a random sign.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from advisor.gate import sequential
from advisor.gate.sequential import SequentialDesign

Draw = Callable[[np.random.Generator, float], Iterator[float]]
MOST_PAIRS = 64  # four of the self-test, two series of at most 16, and some to spare


def gaussian(rng: np.random.Generator, sigma: float) -> Iterator[float]:
    """Independent normal pairs."""
    yield from rng.normal(0.0, sigma, MOST_PAIRS)


def heavy_tailed(rng: np.random.Generator, sigma: float) -> Iterator[float]:
    """Student's t with three degrees of freedom, scaled to the same standard deviation."""
    yield from rng.standard_t(3, MOST_PAIRS) * sigma / math.sqrt(3.0)


def outliers(rng: np.random.Generator, sigma: float) -> Iterator[float]:
    """One pair in ten is hit by a neighbour and has five times the noise of the others."""
    wild = rng.random(MOST_PAIRS) < 0.1
    yield from rng.normal(0.0, sigma / math.sqrt(0.9 + 0.1 * 25.0), MOST_PAIRS) * np.where(wild, 5.0, 1.0)


def autoregressive(rng: np.random.Generator, sigma: float, phi: float = 0.67) -> Iterator[float]:
    """The machine's speed swings slowly (lag-one correlation as measured on a shared machine)."""
    speed, turns = 0.0, []
    for shock in rng.normal(0.0, 1.0, 2 * MOST_PAIRS):
        speed = phi * speed + shock
        turns.append(speed)
    # Two neighbouring values differ with variance 2 (1 - phi) / (1 - phi^2) = 2 / (1 + phi).
    yield from _random_order(rng, np.array(turns) * sigma / math.sqrt(2.0 / (1.0 + phi)))


def drift(rng: np.random.Generator, sigma: float) -> Iterator[float]:
    """The machine gets slower all the time, by one sigma per turn, on top of noise."""
    turns = np.arange(2 * MOST_PAIRS) * sigma * 0.7 + rng.normal(0.0, 0.5 * sigma, 2 * MOST_PAIRS)
    yield from _random_order(rng, turns)


def bimodal(rng: np.random.Generator, sigma: float) -> Iterator[float]:
    """Each process is in a fast or a slow mode (memory layout, core), half of them in each."""
    modes = rng.integers(0, 2, 2 * MOST_PAIRS) * sigma * math.sqrt(2.0) * 0.995
    yield from _random_order(rng, modes + rng.normal(0.0, sigma * 0.05, 2 * MOST_PAIRS))


def two_points(rng: np.random.Generator, sigma: float) -> Iterator[float]:
    """Every pair is +sigma or -sigma: the worst case for a t test on few pairs."""
    yield from rng.choice([-sigma, sigma], MOST_PAIRS)


def ties(rng: np.random.Generator, sigma: float) -> Iterator[float]:
    """A coarse clock: pairs are rounded to multiples of one sigma, so that many are equal."""
    yield from np.round(rng.normal(0.0, 1.0, MOST_PAIRS)) * sigma * 0.96


def _random_order(rng: np.random.Generator, turns: np.ndarray) -> np.ndarray:
    return (turns[1::2] - turns[::2]) * rng.choice([-1.0, 1.0], len(turns) // 2)


KINDS: dict[str, Draw] = {
    "gaussian": gaussian,
    "t3": heavy_tailed,
    "outliers": outliers,
    "ar1": autoregressive,
    "drift": drift,
    "bimodal": bimodal,
    "two-points": two_points,
    "ties": ties,
}


def simulate(
    kind: str, sigma: float, change: float, gates: int, seed: int, plan: SequentialDesign | None = None
) -> dict[str, object]:
    """Runs `gates` gates of one kind of noise on a true change; shares of the verdicts, and what the pairs cost."""
    plan = plan or SequentialDesign()
    rng = np.random.default_rng([seed, list(KINDS).index(kind), round(sigma * 1e4), round(change * 1e4)])
    verdicts: Counter[str] = Counter()
    pairs, silent = 0, 0
    for _ in range(gates):
        noise = KINDS[kind](rng, sigma)
        self_test = [next(noise) for _ in range(4)]
        result = sequential.run(lambda: math.log1p(change) + next(noise), plan, self_test)  # noqa: B023 - used at once
        verdicts[result.decision] += 1
        pairs += result.pairs
        silent += result.decision == "pass" and result.detectable > plan.tolerance
    shares = {name: verdicts[name] / gates for name in ("pass", "regression", "inconclusive")}
    return {
        "noise": kind,
        "pair_noise": sigma,
        "true_change": change,
        "gates": gates,
        **shares,
        "regression_upper_95": upper_bound(verdicts["regression"], gates),
        "silent_passes": silent,
        "mean_pairs": round(pairs / gates, 1),
    }


def upper_bound(hits: int, trials: int) -> float:
    """One-sided 95 % upper bound of a rate (Wilson's score interval)."""
    z, rate = 1.645, hits / trials
    centre = rate + z * z / (2 * trials)
    spread = z * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    return round((centre + spread) / (1 + z * z / trials), 5)


def main() -> None:
    """Prints one JSON line per cell, then what the goals say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gates", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", choices=sorted(KINDS))
    parser.add_argument("--sigma", action="append", type=float)
    parser.add_argument("--change", action="append", type=float)
    args = parser.parse_args()
    start = time.perf_counter()
    rows = []
    for kind in args.kind or KINDS:
        for sigma in args.sigma or (0.005, 0.01, 0.03, 0.05, 0.10):
            for change in args.change or (0.0, 0.05, 0.10):
                rows.append(simulate(kind, sigma, change, args.gates, args.seed))
                sys.stdout.write(json.dumps(rows[-1]) + "\n")
                sys.stdout.flush()
    for line in goals(rows):
        sys.stderr.write(line + "\n")
    sys.stderr.write(f"{sum(int(str(row['gates'])) for row in rows):,} gates in {time.perf_counter() - start:.0f} s\n")


def goals(rows: list[dict[str, object]]) -> list[str]:
    """The worst cell of each goal."""

    def worst(pick: Callable[[dict[str, object]], bool], value: Callable[[dict[str, object]], float]) -> str:
        chosen = [row for row in rows if pick(row)]
        if not chosen:
            return "not simulated"
        row = max(chosen, key=value)
        return f"worst {value(row):.4f} ({row['noise']} at {row['pair_noise']:.1%})"

    def number(row: dict[str, object], key: str) -> float:
        return float(str(row[key]))

    small = [0.005, 0.01, 0.03]
    return [
        f"false alarms (goal <= 0.01): {worst(lambda r: r['true_change'] == 0, lambda r: number(r, 'regression'))}",
        "+5 % not found at pair noise <= 3 % (goal <= 0.05): "
        + worst(lambda r: r["true_change"] == 0.05 and r["pair_noise"] in small, lambda r: 1 - number(r, "regression")),
        f"+5 % passed: {worst(lambda r: r['true_change'] == 0.05, lambda r: number(r, 'pass'))}",
        f"silent passes: {sum(int(str(row['silent_passes'])) for row in rows)}",
    ]


if __name__ == "__main__":
    main()

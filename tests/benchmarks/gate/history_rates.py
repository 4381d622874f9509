"""How often change points are found in simulated histories: false alarms, a step of 3 %, a drift of 0.3 % per commit.

python tests/benchmarks/gate/history_rates.py            # the table of docs/gate.md, some minutes
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3]))

from advisor.gate.history.change_points import Floats, shifts

COMMITS = 60
STEP_AT, STEP = 30, 0.03
DRIFT_FROM, DRIFT_OVER, DRIFT = 14, 30, 0.003
INDEX = np.arange(COMMITS)


def gauss(rng: np.random.Generator, sd: float) -> Floats:
    return rng.normal(0, sd, COMMITS)


def student(rng: np.random.Generator, sd: float) -> Floats:
    return rng.standard_t(3, COMMITS) * sd / 3**0.5


def outliers(rng: np.random.Generator, sd: float) -> Floats:
    """One result in twenty is on average 10 % slower."""
    return gauss(rng, sd) + (rng.random(COMMITS) < 0.05) * rng.exponential(0.1, COMMITS)


def correlated(rng: np.random.Generator, sd: float) -> Floats:
    """Neighbours correlate by 0.3, as where a machine has slow days."""
    found = gauss(rng, sd)
    for i in range(1, COMMITS):
        found[i] = 0.3 * found[i - 1] + found[i] * (1 - 0.3**2) ** 0.5
    return found


KINDS: dict[str, Callable[[np.random.Generator, float], Floats]] = {
    "Gaussian": gauss,
    "Student's t, 3 degrees": student,
    "one in twenty 10 % slower": outliers,
    "correlated by 0.3": correlated,
}


def rates(kind: str, sd: float, count: int, seed: int = 1) -> tuple[float, float, float, float]:
    """Shares of series: (flat, with any change), (step, found within two commits), (drift, found), (drift, named)."""
    rng, noise = np.random.default_rng(seed), KINDS[kind]
    flat = [bool(shifts(noise(rng, sd))) for _ in range(count)]
    step = [shifts(noise(rng, sd) + STEP * (INDEX >= STEP_AT)) for _ in range(count)]
    near = [any(abs(one.last - STEP_AT) <= 2 or one.first <= STEP_AT <= one.last for one in found) for found in step]
    ramp = DRIFT * np.clip(INDEX - DRIFT_FROM, 0, DRIFT_OVER)
    drift = [shifts(noise(rng, sd) + ramp) for _ in range(count)]
    named = [any(one.kind == "drift" and one.after > one.before for one in found) for found in drift]
    return tuple(float(np.mean(one)) for one in (flat, near, [bool(x) for x in drift], named))  # type: ignore[return-value]


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print("| noise of a result | false alarms | step of 3 % | drift found | drift named |")
    print("|---|--:|--:|--:|--:|")
    for kind in KINDS:
        for sd in (0.005, 0.01, 0.02):
            shown = " | ".join(f"{share * 100:.1f} %" for share in rates(kind, sd, count))
            print(f"| {kind}, {sd * 100:.1f} % | {shown} |", flush=True)


if __name__ == "__main__":
    main()

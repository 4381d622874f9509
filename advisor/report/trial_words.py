"""What was measured of one trial beside its gain, in words for every output."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.model import Counted, Speed, Trial
from advisor.quantities import duration

# A start that takes longer by less than this is the noise of two processes that start at once.
_LONG_START_US = 1e6


def details(trial: Trial) -> str:
    """Step times, what was counted, and what the start costs."""
    said = []
    if trial.base and trial.changed:
        said.append(f"now {times(trial.changed)}")
        if trial.work != 1 and trial.base.samples_per_s and trial.changed.samples_per_s:
            rates = f"{trial.base.samples_per_s:.4g} -> {trial.changed.samples_per_s:.4g} samples/s"
            said.append(f"{rates}, {trial.work:.3g} times the samples a step; the gain is per sample")
    said += [f"{one.name} {_count(one, one.base)} -> {_count(one, one.changed)}" for one in differing(trial.counters)]
    if trial.first_startup_us and trial.first_startup_us > _LONG_START_US:
        again = f", {duration(trial.startup_us)} when cached" if trial.startup_us and trial.startup_us > 0 else ""
        pays = f"; pays after {trial.pays_after:,} step{'s' * (trial.pays_after > 1)}" if trial.pays_after else ""
        said.append(f"starts {duration(trial.first_startup_us)} later{again}{pays}")
    return "; ".join(said)


def _count(of: Counted, value: float) -> str:
    return duration(value) if of.unit else f"{value:.4g}"


def times(speed: Speed) -> str:
    """Median, mean and 90th percentile of a step."""
    return f"{duration(speed.median_us)} (mean {duration(speed.mean_us)}, p90 {duration(speed.p90_us)})"


def differing(counters: Sequence[Counted], *, least: float = 0.05) -> list[Counted]:  # smaller changes are noise
    """Those that changed by a share that is worth a word."""
    return [one for one in counters if abs(one.changed - one.base) > least * max(one.base, one.changed)]

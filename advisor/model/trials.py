"""Changes that were measured."""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from advisor.model.findings import Risk, Treatment

TryVerdict = Literal[
    "faster", "not proven", "slower", "changes training", "no effect", "out of memory", "failed", "not tried"
]
Numbers = Literal["equal", "within seeds", "outside seeds", "not compared"]
# Whether the counter that the advice predicts changed: `unknown` if it predicts none.
Mechanism = Literal["moved", "not moved", "unknown"]


class Speed(Struct, frozen=True):
    """Step times of one side, medians over its pairs. samples_per_s: None if no loader's batches were counted."""

    median_us: float
    mean_us: float
    p90_us: float
    samples_per_s: float | None = None


class Counted(Struct, frozen=True):
    """Occurrences per step of an event, or its time (`unit` "us"), without and with the change."""

    name: str
    base: float
    changed: float
    unit: str = ""


class Trial(Struct, frozen=True):
    """One change that was measured against the unchanged script, or why it was not.

    gain, low, high      share of the base's step that the change saves (0.2: 20 % less time), with the bounds of its
                         95 % interval; None if not measured
    promised_low, _high  the same share as estimated by the finding; None if it had no estimate
    numbers              losses compared with the base's for the same seeds: bitwise equal; differing no more than
                         between seeds; differing more; not compared (`why` says why)
    memory_bytes, base_memory_bytes  peak of the accelerator's allocator, or of the processes on a CPU
    work                 samples of a changed step per sample of the script's own; if not 1, gain is per sample
    mechanism, counters  whether the counter that the advice predicts changed, and all counters that differ
    first_startup_us     additional start-up time, warm-up included, in the first pair, when nothing was cached;
    startup_us           median of the later pairs
    rules                rules whose findings suggest the change;  treatments: what was applied, several if combined
    """

    title: str
    verdict: TryVerdict
    why: str = ""
    rules: tuple[str, ...] = ()
    risk: Risk = "exact"
    treatments: tuple[Treatment, ...] = ()
    promised_low: float | None = None
    promised_high: float | None = None
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    base: Speed | None = None
    changed: Speed | None = None
    numbers: Numbers = "not compared"
    memory_bytes: int | None = None
    base_memory_bytes: int | None = None
    reached: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    work: float = 1.0
    mechanism: Mechanism = "unknown"
    counters: tuple[Counted, ...] = ()
    first_startup_us: float | None = None
    startup_us: float | None = None

    @property
    def pays_after(self) -> int | None:
        """Steps after which the longer first start-up pays off; None if it was not longer, or nothing is saved."""
        if not (self.first_startup_us and self.base and self.gain) or self.gain <= 0 or self.first_startup_us <= 0:
            return None
        # Of a step that does more work, the share of each sample's time.
        return math.ceil(self.first_startup_us / (self.gain * self.base.median_us * self.work))


class Tried(Struct, frozen=True):
    """What `advisor try` measured on this machine with this script.

    trials         each change alone, in the order of their estimates;  together: the proven ones combined, without
                   those that contribute nothing
    contributions  what the combination of all proven changes loses without each of them
    noise          of pairs of base against base, as a share;  repeats: equal seeds give bitwise equal losses
    error          upper bound of the probability that any change is reported as faster although it is not
    """

    trials: tuple[Trial, ...] = ()
    together: Trial | None = None
    contributions: tuple[Trial, ...] = ()
    noise: float | None = None
    repeats: bool | None = None
    error: float = 0.05
    budget_s: float = 0.0
    seconds: float = 0.0

"""Workers that have their batches ready in time, by taking the cores from the training."""

from __future__ import annotations

from msgspec.structs import replace

from advisor.api import Finding, RankRecord, Vitals

from ..shared._words import percent, plural
from ._loader import Seen, made_by
from ._workers_advice import ALL_PARTS, cheaper_samples

# Cores that are in use for nine tenths of the time have none to spare for either side.
_FULL = 0.9
# Of all CPU time, in the workers: of less, samples at half their cost give back less than a sixth of the step.
_LEAST = 1 / 3


def advice(seen: Seen) -> Finding | None:
    """What loading takes from the training although the loop hardly waits for a batch; None where that is little."""
    vitals = seen.record.vitals if seen.record else None
    if vitals is None or seen.record is None or not seen.workers or not vitals.timed_us:
        return None
    by_workers, used = _cpu_shares(vitals, seen.record)
    queued, most = _without_core(vitals)
    if used < _FULL or min(by_workers, queued) < _LEAST:
        return None
    who = plural(seen.workers, "worker")
    # What samples cost is to be changed, not the line that hardly waits for them.
    changed = replace(seen, where=tuple(dict.fromkeys((*made_by(seen.facts), *seen.where))))
    return changed.finding(
        f"Loading takes the cores from the training: the loader's {who} use {percent(by_workers)} of all CPU time, and "
        f"the training loop is without a core for {percent(queued)} of each step, although batches are ready in time.",
        seen.price.shares(0.0, most, _HOW),
        cheaper_samples(seen.facts),
        {"cpu_of_workers": by_workers, "queued": queued, "cores_used": used},
        ALL_PARTS,
    )


_HOW = (
    "high: no thread of the training waits for a core any more, and none for another one that does, if they wait "
    "independently of each other; low: samples cannot be made cheaper"
)


def _cpu_shares(vitals: Vitals, record: RankRecord) -> tuple[float, float]:
    """(the workers' share of this rank's CPU time, the share of its cores' time that this is); 0.0 if unknown."""
    workers = sum(loader.num_workers or 0 for loader in record.loaders)
    cores = (record.settings.cores or 0) / max(record.world_size, 1)
    if vitals.process_cpu_us is None or vitals.timed_us is None or not cores:
        return 0.0, 0.0
    if vitals.children_cpu_us is None or (vitals.children or 0) > workers:
        return 0.0, 0.0  # other processes of the script are among them
    in_all = vitals.process_cpu_us + vitals.children_cpu_us
    return vitals.children_cpu_us / max(in_all, 1.0), in_all / (vitals.timed_us * cores)


def _without_core(vitals: Vitals) -> tuple[float, float]:
    """Shares of the step in which the loop's thread has no core; in which it or one that shares its ops has none."""
    timed_us = vitals.timed_us or 1.0
    loop, pool = (min((us or 0.0) / timed_us, 1.0) for us in (vitals.loop_queued_us, vitals.pool_queued_us))
    return loop, 1 - (1 - loop) * (1 - pool)

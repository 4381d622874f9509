"""Advice about a loader without a device, where what its batches cost is known."""

from __future__ import annotations

from advisor.api import Finding, Fix, Loader, RankRecord, Saving, Treatment, constant, duration

from ..shared._batches import Batch, respawned
from ..shared._words import count, loader_call, percent, plural
from . import _takes_cores
from ._loader import Seen, keep_workers, risk_of
from ._workers import without_core_us
from ._workers_advice import beside_the_step

# Workers that need less than half a core together are ahead of the loop; with more they take it from the training.
_BUSY_WORKERS = 0.5
# Part of the time that a worker needs when it has a core to itself.
_WORKER_ALONE = constant("loader.worker_alone_share").value
# Part of the step from which a batch that is handed over slowly is worth a loader without workers.
_NEEDLESS = 0.10

_ONCE = Fix(
    "Prepare the samples once, before the training, and keep them as tensors",
    "exact",
    "def __getitem__(self, index):\n    return parse(self.records[index])",
    "self.samples = [parse(record) for record in records]  # in __init__\n\n"
    "def __getitem__(self, index):\n    return self.samples[index]",
)
_TOGETHER = Fix(
    "Collate the batch with one tensor op",
    "exact",
    "for row, tokens in enumerate(samples):\n    for column, token in enumerate(tokens):\n"
    "        batch[row, column] = token",
    "batch = torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)",
)


def on_cpu(seen: Seen, made: Batch, min_gain: float) -> Finding | None:
    """Workers that live on, samples that are prepared, no workers, or more of them: the first that fits."""
    epochs = respawned(seen.facts, seen.price.scale, seen.record.steps) if seen.record is not None else None
    if epochs is not None:
        return _respawned(seen, epochs) if epochs[0] >= min_gain else None
    waited = seen.waited
    if seen.workers == 0:
        saving = _of_prepared(seen, made)
        if max(made.us - made.floor_us[1], 0.0) < min_gain * seen.step_us or made.ready:
            return None
        together = made.collate_us > made.sample_us
        if (together or made.can_be_prepared) and not (together and _collated_by_package(seen.facts)):
            return _prepared(seen, made, saving)
    elif made.us < _BUSY_WORKERS * seen.step_us:
        return _needless(seen, made, waited)
    return beside_the_step(seen) if waited[1] >= min_gain else _takes_cores.advice(seen)


def _collated_by_package(facts: Loader | None) -> bool:
    """Whether a package's function puts samples together, as one that tokenizes them: workers can run it as it is."""
    return facts is not None and facts.collate not in (None, "default_collate") and facts.collate_from is None


def _of_prepared(seen: Seen, made: Batch) -> Saving:
    how = "the measured time of a batch minus the most and the least that a batch of prepared samples takes; low: "
    how += (
        "a collate function other than torch's takes as long as now; high: plus what loading evicts from the caches; "
    )
    how += "nothing where samples are random and differ in each epoch"
    most_us = max(made.us - made.floor_us[0], 0.0)
    least_us = max(made.us - max(made.floor_us[1], _kept_collate_us(seen, made)), 0.0)
    return seen.price.of_us(least_us, most_us + seen.price.refill_us(made.us), how)


def _kept_collate_us(seen: Seen, made: Batch) -> float:
    """What putting prepared samples together still takes: a function of the script's or a library's does as it did."""
    of_torch = seen.facts is None or seen.facts.collate in (None, "default_collate")
    return 0.0 if of_torch or made.collate_us > made.sample_us else made.collate_us


def _prepared(seen: Seen, made: Batch, saving: Saving) -> Finding:
    together = made.collate_us > made.sample_us
    what = "collating its samples" if together else "preparing its samples one by one in Python"
    said = (
        f", which it loads itself (num_workers=0): {what} takes "
        f"{duration(made.collate_us if together else made.sample_us)}{seen.costly.said if seen.costly else ''}; a "
        f"batch of prepared samples takes {duration(made.floor_us[0])} to {duration(made.floor_us[1])}."
    )
    return seen.finding(
        seen.waits_for(made.us, min(made.us / seen.step_us, 1.0), said),
        saving,
        _TOGETHER if together else _ONCE,
        {"batch_us": made.us, "prepared_us": list(made.floor_us), "bytes": made.whole_bytes},
    )


def _respawned(seen: Seen, epochs: tuple[float, float]) -> Finding:
    facts, low, high = seen.facts, *epochs
    every = (facts.dataset_size or 0) // (facts.batch_size or 1) if facts else 0
    how = "low: the first steps of an epoch become as fast as others; high: all become as fast as the fastest 10 %"
    share = " to ".join(dict.fromkeys((percent(low), percent(high))))
    return seen.finding(
        f"Every {count(every)} steps, at the start of an epoch, the training loop waits for "
        f"{plural(seen.workers or 0, 'new worker')} to start: {share} of its time.",
        seen.price.shares(low, high, how, basis="measured"),
        keep_workers(facts, seen.workers),
        {"steps_per_epoch": every},
        claims=("input", "host"),
    )


def _needless(seen: Seen, made: Batch, waited: tuple[float, float]) -> Finding | None:
    """Workers that keep up and are waited for all the same: handing a batch over takes longer than making it."""
    step_us = seen.step_us
    low_us, high_us = waited[0] * step_us - made.us, waited[1] * step_us - made.us * _WORKER_ALONE
    if min(low_us, _waited_us(seen.record, low_us + made.us) - made.us) < _NEEDLESS * step_us:
        return None
    times = seen.price.scale.unprofiled
    # Workers that hand over cheap batches take the cores from everything else as well.
    # They do so in a few steps most of all, which the median does not show.
    usual_us = max(times.mean or 0.0, times.median or 0.0)
    uneven_us = max(1 - times.p10 / usual_us, 0.0) * (1 - waited[0]) * step_us if times.p10 and usual_us else 0.0
    taken_us = max(uneven_us, without_core_us(seen.record, step_us))
    how = "low: the wait minus the time to load the batch in the loop; high: on a free core, with all steps as fast "
    how += "as the fastest 10 % or none waiting for a core"
    said = (
        f" from {plural(seen.workers or 0, 'worker')}, although loading it takes only {duration(made.us)}: passing it "
        "between processes costs more than loading it."
    )
    return seen.finding(
        seen.waits_for(waited[0] * step_us, waited[0], said),
        seen.price.of_us(low_us, high_us + taken_us, how),
        Fix(
            "Set `num_workers=0`: load these batches in the training process",
            risk_of(seen.facts),
            loader_call(seen.facts),
            loader_call(seen.facts, num_workers=0),
            Treatment("loader", {"num_workers": 0}),
        ),
        {"batch_us": made.us},
        claims=("input", "forward", "backward"),
    )


def _waited_us(record: RankRecord | None, else_us: float) -> float:
    """The mean time of a fetch in un-profiled steps, as their own clock saw it; what is given where that is unknown.

    The profiler's rows last longer where the loop loses its core as it gets the batch, and a window of few steps may
    hold the end of an epoch.
    """
    fetches = record.steps.unprofiled_parts_us.get("fetch") if record else None
    return sum(fetches) / len(fetches) if fetches else else_us

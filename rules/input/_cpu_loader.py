"""Advice about a loader without a device, where what its batches cost is known."""

from __future__ import annotations

from advisor.api import (
    Finding,
    Fix,
    InputWaits,
    LineCosts,
    Loader,
    RankRecord,
    Saving,
    Scale,
    Source,
    Undilated,
    constant,
    dataclass,
    refill_us,
)

from ..shared._batches import Batch, respawned
from ..shared._words import count, loader_call, percent, plural, time
from ._costly_lines import CostlyLines
from ._workers import without_core_us

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


@dataclass(frozen=True, slots=True)
class Seen:
    """The wait and the loader that the loop waits for. wait_us: profiled µs per step."""

    on_device: bool
    wait_us: float
    share: float
    workers: int | None
    waits: InputWaits
    facts: Loader | None
    record: RankRecord | None


def on_cpu(
    seen: Seen,
    made: Batch,
    waited: tuple[float, float],
    scale: Scale,
    min_gain: float,
    where: tuple[Source, ...],
    costly: CostlyLines | None = None,
) -> tuple[Finding | None, bool]:
    """Without a device, and with what a batch costs known: cheaper batches, or workers that do what they should.

    Second: whether more workers are what is left to ask about.
    """
    step_us = scale.step_us
    epochs = None
    if seen.record is not None:
        epochs = respawned(seen.facts, scale, seen.record.steps)
    if epochs is not None:
        return (_respawned(seen, epochs, step_us, where) if epochs[0] >= min_gain else None), False
    least, most = (max(made.us - floor, 0.0) for floor in reversed(made.floor_us))
    most += refill_us(step_us - made.us)
    if seen.workers == 0:
        if least < min_gain * step_us or made.ready:
            return None, False
        if made.can_be_prepared or made.collate_us > made.sample_us:
            return _prepared(seen, made, (min(least, step_us), min(most, step_us)), scale, where, costly), False
    elif made.us < _BUSY_WORKERS * step_us:
        # Workers that keep up and are waited for all the same: handing a batch over takes longer than making it.
        low_us, high_us = waited[0] * step_us - made.us, waited[1] * step_us - made.us * _WORKER_ALONE
        least_us = min(low_us, _waited_us(seen.record, low_us + made.us) - made.us)
        needless = least_us >= _NEEDLESS * step_us
        return (_needless(seen, made, low_us, high_us, waited, scale, where) if needless else None), False
    return None, waited[1] >= min_gain


def _waited_us(record: RankRecord | None, else_us: float) -> float:
    """The mean time of a fetch in un-profiled steps, as their own clock saw it; what is given where that is unknown.

    The profiler's rows last longer where the loop loses its core as it gets the batch, and a window of few steps may
    hold the end of an epoch.
    """
    fetches = record.steps.unprofiled_parts_us.get("fetch") if record else None
    return sum(fetches) / len(fetches) if fetches else else_us


def _prepared(
    seen: Seen,
    made: Batch,
    range_us: tuple[float, float],
    scale: Scale,
    where: tuple[Source, ...],
    costly: CostlyLines | None,
) -> Finding:
    together = made.collate_us > made.sample_us
    what = "collating its samples" if together else "preparing its samples one by one in Python"
    return Finding(
        message=(
            f"The training loop waits {time(made.us)} of each step ({percent(min(made.us / scale.step_us, 1.0))}) for "
            f"the next batch, which it loads itself (num_workers=0): {what} takes "
            f"{time(made.collate_us if together else made.sample_us)}{costly.said if costly else ''}; a batch of "
            f"prepared samples takes "
            f"{time(made.floor_us[0])} to {time(made.floor_us[1])}."
        ),
        saving=Saving(
            *range_us,
            "measured",
            "the measured time of a batch minus the most and the least that a batch of prepared samples takes; high: "
            "plus what loading evicts from the caches; nothing where samples are random and differ in each epoch",
        ),
        where=where,
        facts=facts_of(seen) | {"batch_us": made.us, "prepared_us": list(made.floor_us), "bytes": made.whole_bytes},
        fix=_TOGETHER if together else _ONCE,
        claims=("input",),
    )


def _respawned(seen: Seen, epochs: tuple[float, float], step_us: float, where: tuple[Source, ...]) -> Finding:
    facts = seen.facts
    every = (facts.dataset_size or 0) // (facts.batch_size or 1) if facts else 0
    return Finding(
        message=(
            f"Every {count(every)} steps, at the start of an epoch, the training loop waits for "
            f"{plural(seen.workers or 0, 'new worker')} to start: {percent(epochs[0])} to {percent(epochs[1])} of "
            f"its time."
        ),
        saving=Saving(
            epochs[0] * step_us,
            epochs[1] * step_us,
            "measured",
            "low: the first steps of an epoch become as fast as others; high: all become as fast as the fastest 10 %",
        ),
        where=where,
        facts=facts_of(seen) | {"steps_per_epoch": every},
        fix=keep_workers(facts, seen.workers),
        claims=("input", "host"),
    )


def _needless(
    seen: Seen,
    made: Batch,
    low_us: float,
    high_us: float,
    waited: tuple[float, float],
    scale: Scale,
    where: tuple[Source, ...],
) -> Finding:
    times = scale.unprofiled
    step_us = scale.step_us
    # Workers that hand over cheap batches take the cores from everything else as well.
    # They do so in a few steps most of all, which the median does not show.
    usual_us = max(times.mean or 0.0, times.median or 0.0)
    uneven_us = max(1 - times.p10 / usual_us, 0.0) * (1 - waited[0]) * step_us if times.p10 and usual_us else 0.0
    taken_us = max(uneven_us, without_core_us(seen.record, step_us))
    return Finding(
        message=(
            f"The training loop waits {time(waited[0] * step_us)} of each step ({percent(waited[0])}) for the next "
            f"batch from {plural(seen.workers or 0, 'worker')}, though loading it takes only {time(made.us)}: passing "
            "it between processes costs more than loading it."
        ),
        saving=Saving(
            min(low_us, step_us),
            min(high_us + taken_us, step_us),
            "measured",
            "low: the wait minus the time to load the batch in the loop; high: on a free core, with all steps as fast "
            "as the fastest 10 % or none waiting for a core",
        ),
        where=where,
        facts=facts_of(seen) | {"batch_us": made.us},
        fix=Fix(
            "Set `num_workers=0`: load these batches in the training process",
            "exact",
            loader_call(seen.facts),
            loader_call(seen.facts, num_workers=0),
        ),
        claims=("input", "forward", "backward"),
    )


def keep_workers(facts: Loader | None, workers: int | None) -> Fix | None:
    """Persistent workers, where there are workers that do not persist."""
    if workers == 0 or (facts and facts.persistent_workers):
        return None
    return Fix(
        "Set `persistent_workers=True` to keep the workers between epochs",
        "exact",
        loader_call(facts),
        f"{loader_call(facts, persistent_workers=True)}  # created once, before the loop over the epochs",
    )


def facts_of(seen: Seen) -> dict[str, object]:
    """The evidence that every finding about a loader shows."""
    return {
        "wait_us": seen.wait_us,
        "fetch_us": seen.waits.us,
        "longest_fetch_us": seen.waits.longest_us,
        "workers": seen.workers,
        "sample_us": seen.facts.sample_us if seen.facts else None,
    }


def where_of(
    costs: LineCosts | None,
    waits: InputWaits,
    workers: int | None,
    undilated: Undilated,
    costly: CostlyLines | None = None,
    facts: Loader | None = None,
) -> tuple[Source, ...]:
    """The lines that take most of the fetch in the loop's own process, then the line that fetches.

    What recording the ops of a line took is left out: a line of many small ops looks longer than one that waits.
    """
    inside = list(costly.sources) if costly else []
    if costs and workers == 0 and not inside:
        row_us = next((part.row_us for part in undilated.parts if part.name == "fetch"), 0.0)
        own = [line for line in costs.lines if not line.source.file.startswith("<") and line.parts.get("input")]
        most = max(own, key=lambda line: line.parts["input"] - line.rows * row_us, default=None)
        inside = [most.source] if most else []
    loop = [waits.where] if waits.where and not waits.where.file.startswith("<") else []
    # Of workers no line is known: after the line that waits for them stands the function that they spend their time in.
    made = [] if inside else _made_by(facts)
    return tuple({(line.file, line.line): line for line in [*inside, *loop, *made]}.values())


def _made_by(facts: Loader | None) -> list[Source]:
    """The script's function that takes most of a batch: the one that reads a sample, or puts them together."""
    if facts is None or facts.sample_us is None:
        return []
    together = (facts.collate_us or 0.0) > facts.sample_us * (facts.batch_size or 1)
    place = facts.collate_from if together else facts.sample_from
    return [Source(*place, "function")] if place and not place[0].startswith("<") else []

"""What is known of the loader that the training loop waits for: all that advice on it is chosen by."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from advisor.api import (
    Deprofiled,
    Finding,
    Fix,
    InputWaits,
    LineCost,
    LineCosts,
    Loader,
    LoaderFacts,
    Price,
    RankRecord,
    Risk,
    Saving,
    Source,
    Treatment,
    duration,
)

from ..shared._batches import Batch, batch
from ..shared._places import first_of, made_at, restarts_at, workers_at
from ..shared._words import loader_call, percent
from ._costly_lines import CostlyLines, costly_lines
from ._sample_ops import at_once_us
from ._uneven_waits import UnevenWaits, uneven_waits


class Seen(Struct, frozen=True, eq=False):
    """The wait for batches, the loader that the loop waits for, and what is known of both.

    wait_us   profiled µs per step that are left to explain;  share: of the step. Beside a device: while that is idle
    workers   in use; None where only their presence is known
    made      what a batch costs in the loop's own process, None where that is not known
    costly    the lines that take most of that; None where there are none
    where     the lines to look at, for most advice
    uneven    the waits of all un-profiled steps, where the median one does not tell them; wait_us and share are theirs
    """

    price: Price
    waits: InputWaits
    costs: LineCosts | None
    facts: Loader | None
    record: RankRecord | None
    wait_us: float
    share: float
    workers: int | None
    made: Batch | None = None
    costly: CostlyLines | None = None
    where: tuple[Source, ...] = ()
    uneven: UnevenWaits | None = None

    @classmethod
    def of(
        cls,
        price: Price,
        waits: InputWaits,
        costs: LineCosts | None,
        loader: LoaderFacts | None,
        record: RankRecord | None,
    ) -> Seen:
        """What the trace and the record tell."""
        part = "idle_input" if price.on_device else "input"
        facts = loader.loader if loader else None
        workers = _in_use(waits, facts)
        wait_us, share = price.breakdown.us(part), price.breakdown.share(part)
        seen = cls(price, waits, costs, facts, record, wait_us, share, workers)
        if price.on_device:
            return replace(seen, where=(waits.where,) if waits.where else ())
        deprofiled = price.deprofiled
        costly = costly_lines(costs, waits, facts, deprofiled, price.scale) if workers == 0 else None
        made = batch(facts, waits, price.ops.trace, price.ops.nesting)
        if costly:
            of_lines = min(sum(costly.us) / max(costly.fetch_us, 1e-9), 1.0)
            costly = costly.with_ops(at_once_us(price, waits, facts, of_lines), price.scale.step_us)
        if costly and made is not None:
            costly = costly.within(made.us)
        where = where_of(costs, waits, workers, deprofiled, costly, facts)
        where = first_of(rows_before(where[:1], costs, record), where)
        uneven = uneven_waits(record, facts)
        if uneven is not None:
            wait_us, share = uneven.share * price.ops.steps.step_us, uneven.share
        return replace(seen, wait_us=wait_us, share=share, made=made, costly=costly, where=where, uneven=uneven)

    @property
    def waited(self) -> tuple[float, float]:
        """The wait as a share of the un-profiled step, without a device: by what the profiler may have slowed."""
        if self.uneven is not None:
            return self.share, self.share
        deprofiled = self.price.deprofiled
        return deprofiled.share(deprofiled.in_part("fetch", self.wait_us, python_us=self.wait_us))

    @property
    def on_device(self) -> bool:
        """Whether it is a device that waits, not the loop alone."""
        return self.price.on_device

    @property
    def step_us(self) -> float:
        """The un-profiled step."""
        return self.price.scale.step_us

    def less(self, us: float) -> Seen:
        """The same where so much of the wait is explained."""
        share = self.share * max(1 - us / max(self.wait_us, 1.0), 0.0)
        return replace(self, wait_us=max(self.wait_us - us, 0.0), share=share)

    def waits_for(self, us: float, share: float, ending: str) -> str:
        """'The training loop waits 1.2 ms of each step (5 %) for the next batch' and what follows."""
        who, step = "The GPU" if self.on_device else "The training loop", "each step"
        if self.uneven is not None:
            us, share, step, ending = self.uneven.us, self.share, "an average step", f"{self.uneven.said}{ending}"
        return f"{who} waits {duration(us)} of {step} ({percent(share)}) for the next batch{ending}"

    def waits_for_batches(self, ending: str) -> str:
        """The same with what a batch takes where the loop makes it itself, else with what it waits."""
        us = self.made.us if self.workers == 0 and self.made else self.price.scale.scaled(self.wait_us)
        return self.waits_for(us, min(us / self.step_us, 1.0), ending)

    def finding(
        self,
        message: str,
        saving: Saving | None,
        fix: Fix | None,
        facts: dict[str, object],
        claims: tuple[str, ...] = ("input",),
    ) -> Finding:
        """The finding, with the evidence that every finding about a loader shows."""
        known = {
            "wait_us": self.wait_us,
            "fetch_us": self.waits.us,
            "longest_fetch_us": self.waits.longest_us,
            "workers": self.workers,
            "sample_us": self.facts.sample_us if self.facts else None,
        }
        # What is to be changed is where the loader is made; other fixes have it as a last place, to say which it is.
        first: tuple[Source, ...] = ()
        if fix and "DataLoader(" in fix.after:
            first = restarts_at(self.facts) if "persistent_workers" in fix.title else workers_at(self.facts)
        where = first_of(first, (*self.where, *made_at(self.facts)))
        return Finding(message, saving=saving, where=where, facts=known | facts, fix=fix, claims=claims)


def _in_use(waits: InputWaits, facts: Loader | None) -> int | None:
    """Workers in use; None where only their presence is known."""
    if facts and facts.num_workers is not None:
        return facts.num_workers
    return 0 if waits.single_process else None


def risk_of(facts: Loader | None) -> Risk:
    """What other workers change: each has random numbers of its own, so augmented samples are those of another seed."""
    return "draws" if facts and facts.random_samples else "exact"


def keep_workers(facts: Loader | None, workers: int | None) -> Fix | None:
    """Persistent workers, where there are workers that do not persist."""
    if workers == 0 or (facts and facts.persistent_workers):
        return None
    return Fix(
        "Set `persistent_workers=True` to keep the workers between epochs",
        risk_of(facts),
        loader_call(facts),
        f"{loader_call(facts, persistent_workers=True)}  # created once, before the loop over the epochs",
        Treatment("loader", {"persistent_workers": True}),
    )


def where_of(
    costs: LineCosts | None,
    waits: InputWaits,
    workers: int | None,
    deprofiled: Deprofiled,
    costly: CostlyLines | None = None,
    facts: Loader | None = None,
) -> tuple[Source, ...]:
    """The lines that take most of the fetch in the loop's own process, then the line that fetches.

    What recording the ops of a line took is left out: a line of many small ops looks longer than one that waits.
    """
    inside = [*costly.sources, *costly.below] if costly else []
    if costs and workers == 0 and not inside:
        row_us = next((part.row_us for part in deprofiled.parts if part.name == "fetch"), 0.0)
        own = [line for line in costs.lines if not line.source.file.startswith("<") and line.parts.get("input")]
        most = max(own, key=lambda line: line.parts["input"] - line.rows * row_us, default=None)
        inside = [most.source] if most else []
    inside += _caller(inside, waits, costs)
    loop = [waits.where] if waits.where and not waits.where.file.startswith("<") else []
    # Of workers no line is known: after the line that waits for them stands the function that they spend their time in.
    made = [] if inside else made_by(facts)
    # Samples that are prepared once are prepared where the dataset is made: of few places it is one.
    dataset = made_at(facts.dataset_at if facts else None)
    others = [*inside, *loop, *made]
    return first_of((*others[:1], *dataset), others[1:])


def rows_before(where: Sequence[Source], costs: LineCosts | None, record: RankRecord | None) -> tuple[Source, ...]:
    """The line that takes a row out of a table of pandas, where the costliest line behind it reads what it took.

    `.iloc[i]` makes a Series of all columns, which "does not preserve dtypes across the rows" (so of `iterrows` in
    pandas.pydata.org/docs/reference/api/pandas.DataFrame.iterrows.html), and each entry is looked up in Python: arrays
    of the columns, made once, need neither.
    """
    known = costs.by_place if costs else {}
    read = {(one.file, one.function): one for one in where if _of_pandas(known.get((one.file, one.line)))}
    rows = [one for one in (record.containers if record else ()) if one.operation == "row"]
    found = [one for one in rows if (at := read.get((one.file, one.function))) and one.line < at.line]
    return tuple(Source(one.file, one.line, one.function) for one in found)


def _of_pandas(line: LineCost | None) -> bool:
    return line is not None and line.package == "pandas"


def _caller(inside: list[Source], waits: InputWaits, costs: LineCosts | None) -> list[Source]:
    """The line of the dataset that leads to the first of these, through whatever functions lie between.

    It is the one to change where a sample is prepared once; the line that asks for a batch is none of the dataset's.
    """
    known = costs.by_place if costs else {}
    asked = {(line.file, line.line) for line in waits.asked_at}
    way = [(one.file, one.line) for one in inside[:1]]
    while way and way[-1] in known:
        above = known[way[-1]].called_from
        if above is None or above not in known or above in asked or above in way:
            break
        way.append(above)
    return [known[at].source for at in way[1:][-1:]]


def made_by(facts: Loader | None) -> list[Source]:
    """The script's function that takes most of a batch: the one that reads a sample, or puts them together."""
    if facts is None or facts.sample_us is None:
        return []
    together = (facts.collate_us or 0.0) > facts.sample_us * (facts.batch_size or 1)
    place = facts.collate_from if together else facts.sample_from
    return [Source(*place, "function")] if place and not place[0].startswith("<") else []

"""Where the time of the whole run went, as far as it was watched: training steps, and all that lies between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from msgspec import Struct

from advisor.analyses.base.run_parts import line_of, parts_of
from advisor.analyses.base.run_stretches import Group, Span, beyond_the_ordinary, group_of, spans_of
from advisor.capture.record import RankRecord, RunSamples, RunTimes
from advisor.computed import Missing
from advisor.model import RunAccount, RunPart, Source

# Work of an evaluation that a mark shows.
_WORKS = {"fetch": "input", "iterator": "input", "loaders": "input", "outputs": "outputs"}
# Packages that run the loop, or the model where no module is on the stack.
_LOOPS = ("torch", "transformers", "accelerate", "lightning", "pytorch_lightning", "ignite")
# Modules that prepare samples run forward passes, too, which are none of a model.
_TRANSFORMS = "transforms"


class Evaluated(Struct, frozen=True):
    """Time of evaluations at one line, in one kind of work.

    work    forward: a module runs;  input: a batch is fetched, or a framework asks for a loader;
            outputs: a framework keeps what the model returned;  other
            metric: the script's own code, or a package's that is neither torch nor the framework
    hits    samples of it
    marked  a batch that nothing is trained on, or a framework's evaluation, was seen there
    """

    source: Source
    work: str
    us: float
    hits: int
    marked: bool


class WatchedRun(Struct, frozen=True):
    """The parts of one rank's run.

    loop_us      duration from the end of the first training step to the last boundary, without `ours_us`
    loop         the parts of that; shares are of it
    steps        training steps in it
    started_us   the part of `worker_restarts` in which workers start or stop, without the wait for a first batch
    loops        training loops, one after another, that its steps are of
    workers_us, first_batches_us   the same by the clock: to start workers, and to wait for their first batches
    beyond_us    what longer training steps take beyond ordinary ones;  longer: their number
    epochs       how often the loader of the training was exhausted; restarts: new workers for an iterator
    forwards     lines of parts at which a model in training mode runs
    evaluated_us  time of evaluations outside of ordinary steps by the line that calls the model, as far as one runs and
                 no statement around it runs a backward pass
    evaluated    what evaluations outside of ordinary steps spend their time on, the costliest first
    """

    missing: ClassVar[str] = "the whole run was not recorded; capture it with `advisor run`"
    account: RunAccount
    loop_us: float
    loop: dict[str, RunPart]
    steps: int
    started_us: float
    epochs: int
    restarts: int
    workers_us: float
    first_batches_us: float
    beyond_us: float
    longer: int
    forwards: frozenset[Source]
    evaluated_us: Mapping[Source, float]
    evaluated: tuple[Evaluated, ...] = ()
    loops: int = 1

    def per_step_us(self, part: str) -> float:
        """Time of a part of the loop per training step, µs."""
        found = self.loop.get(part)
        return found.us / self.steps if found and self.steps else 0.0

    def share(self, part: str) -> float:
        """A part of the loop as a share of the loop."""
        found = self.loop.get(part)
        return found.us / self.loop_us if found and self.loop_us else 0.0

    @classmethod
    def compute(cls, record: RankRecord) -> WatchedRun:
        """Missing if no training step was detected, and for runs recorded by earlier versions."""
        run = record.run
        if run is None or not run.count.get("step", 0) + run.count.get("long", 0):
            raise Missing(cls.missing)
        spans = tuple(spans_of(run, record.settings.model_device not in (None, "cpu")))
        steps = run.count.get("step", 0) + run.count.get("long", 0)
        inside = [span for span in spans if span.kind not in ("start", "end")]
        loop = parts_of(inside, run)
        return cls(
            account=_account(spans, run, record.rank),
            loop_us=sum(span.us for span in inside),
            loop=loop,
            steps=steps,
            started_us=sum(span.us for span in inside if span.samples and "workers" in span.samples.marks),
            epochs=run.epochs,
            restarts=run.restarts,
            workers_us=run.workers_us,
            first_batches_us=run.first_batches_us,
            beyond_us=beyond_the_ordinary(run),
            longer=run.count.get("long", 0),
            forwards=frozenset(_training_forwards(inside)),
            evaluated_us=_evaluated_us(inside, run),
            evaluated=_evaluated(inside),
            loops=1 + len(run.moved_at),
        )


def _account(spans: Sequence[Span], run: RunTimes, rank: int) -> RunAccount:
    parts = tuple(parts_of(spans, run).values())
    steps = run.count.get("step", 0) + run.count.get("long", 0) + 1
    return RunAccount(sum(part.us for part in parts), steps, run.ours_us, parts, rank, run.sampled)


def _runs_model(one: RunSamples) -> bool:
    return "forward" in one.marks and one.package != _TRANSFORMS


def _training_forwards(spans: Iterable[Span]) -> Iterator[Source]:
    """Statements at which a model runs, and no evaluation does."""
    groups: dict[Group, list[Span]] = defaultdict(list)
    for span in spans:
        if span.samples is not None and span.part in ("other", "logging", "epoch_end"):
            groups[group_of(span.samples)].append(span)
    for group, mine in groups.items():
        if any(span.samples and _runs_model(span.samples) for span in mine):
            yield line_of(group, mine).source


def _evaluated_us(spans: Iterable[Span], run: RunTimes) -> dict[Source, float]:
    """Time of evaluations by the line that calls the model, where gradients are of no use."""
    passed = {group_of(one) for one in run.samples if "backward" in one.marks}
    found: dict[Source, float] = defaultdict(float)
    for span in spans:
        one = span.samples
        if one and one.call[0] and span.part == "evaluation" and span.kind != "step" and group_of(one) not in passed:
            found[Source(*one.call)] += span.us
    return found


def _evaluated(spans: Iterable[Span]) -> tuple[Evaluated, ...]:
    """Evaluations between steps by the user's innermost line and the kind of work."""
    found: dict[tuple[Source, str], list[Span]] = defaultdict(list)
    for span in spans:
        one = span.samples
        if one and one.file and span.part == "evaluation" and span.kind != "step":
            at = one.inner if one.inner[0] else (one.file, one.line, one.function)
            found[Source(*at), _work(one)].append(span)
    every = [
        Evaluated(
            source,
            work,
            sum(span.us for span in mine),
            sum(span.samples.hits for span in mine if span.samples),
            any({"evaluate", "untrained"} & set(span.samples.marks) for span in mine if span.samples),
        )
        for (source, work), mine in found.items()
    ]
    return tuple(sorted(every, key=lambda one: -one.us))


def _work(one: RunSamples) -> str:
    """The kind of work of an evaluation that a sample shows."""
    if _runs_model(one):
        return "forward"
    named = next((work for mark, work in _WORKS.items() if mark in one.marks), "")
    return named or ("other" if one.package in _LOOPS else "metric")

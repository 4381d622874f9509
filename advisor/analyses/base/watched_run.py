"""Where the time of the whole run went, as far as it was watched: training steps, and all that lies between them.

The clock tells how long stretches of each kind took, samples of the loop's stack what ran in them. A place that is
sampled in ordinary training steps as well belongs to the step, however long a step was in which it was seen.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from msgspec import Struct

from advisor.capture.record import RankRecord, RunSamples, RunTimes
from advisor.computed import Missing
from advisor.model import RunAccount, RunLine, RunPart, Source

# In the order in which a run has them.
PARTS = (
    "startup",
    "training",
    "evaluation",
    "checkpoints",
    "worker_restarts",
    "logging",
    "epoch_end",
    "compilation",
    "other",
    "end",
)
# Packages that write down how a training goes, or draw it.
_LOGGERS = (
    *("logging", "tqdm", "rich", "loguru", "tensorboard", "tensorboardX", "wandb", "mlflow", "neptune", "comet_ml"),
    *("clearml", "aim", "visdom", "sacred", "matplotlib", "seaborn", "plotly", "PIL", "imageio", "csv", "json"),
)
# Work of an evaluation that a mark shows.
_WORKS = {"fetch": "input", "iterator": "input", "outputs": "outputs"}
# Packages that run the loop, or the model where no module is on the stack.
_LOOPS = ("torch", "transformers", "accelerate", "lightning", "pytorch_lightning", "ignite")
_OF_DATASETS = ("__getitem__", "__getitems__")
# Modules that prepare samples run forward passes, too, which are none of a model.
_TRANSFORMS = "transforms"
# Work that is told by what is on the stack, wherever that is.
_NAMED = {"save": "checkpoints", "workers": "worker_restarts", "first_batch": "worker_restarts"}
# What only a training step runs, however long other work on the machine holds it up there.
_TRAINS = {"backward", "optimizer"}
# A place belongs to the training step where ordinary steps, for their number, are sampled there this often at least,
# compared with the longer ones. Batches of other lengths make a step two or three times as long, not ten.
_OF_THE_STEP = 0.1
# So does a place that has this part of the samples of ordinary steps: one that other work on the machine holds up may
# last forty times as long as usual, wherever it is.
_MAIN = 0.1
# Samples of long steps from which on a statement that ordinary ones were not sampled at is no part of the step.
_SEEN = 3
# A statement logs where so much of its time outside of known work is in a package that does.
_LOGS = 0.2
# How exactly the mean number of samples in one visit is worked out.
_EXACT = 1e-6
_MOST_LINES = 5

Group = tuple[str, str, int]


class Evaluated(Struct, frozen=True):
    """Time of evaluations at one line, in one kind of work.

    work    forward: a module runs;  input: a batch is fetched;  outputs: a framework keeps what the model returned;
            metric: the script's own code, or a package's that is neither torch nor the framework;  other
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
    forwards: frozenset[Source]
    evaluated_us: Mapping[Source, float]
    evaluated: tuple[Evaluated, ...] = ()

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
        spans = tuple(_spans(run, record.settings.model_device not in (None, "cpu")))
        steps = run.count.get("step", 0) + run.count.get("long", 0)
        whole_us = sum(span.us for span in spans)
        inside = [span for span in spans if span.kind not in ("start", "end")]
        parts = _parts(spans, run, whole_us)
        loop = _parts(inside, run, sum(span.us for span in inside))
        return cls(
            account=RunAccount(whole_us, steps + 1, run.ours_us, tuple(parts.values()), record.rank, run.sampled),
            loop_us=sum(span.us for span in inside),
            loop=loop,
            steps=steps,
            started_us=sum(span.us for span in inside if span.samples and "workers" in span.samples.marks),
            epochs=run.epochs,
            restarts=run.restarts,
            forwards=frozenset(_training_forwards(inside)),
            evaluated_us=_evaluated_us(inside, run),
            evaluated=_evaluated(inside),
        )


class _Span(Struct, frozen=True):
    """Time of one kind of stretches that passed in one part of the run, at one place (none: nothing was sampled).

    of: all samples of that kind, kind_us its whole time: they tell how far `us` is known.
    """

    kind: str
    part: str
    us: float
    samples: RunSamples | None = None
    of: int = 0
    kind_us: float = 0.0


class _Groups(Struct, frozen=True):
    """Statements that belong to training steps, that evaluate between them or within each, that log."""

    steps: set[Group]
    within: set[Group]
    evaluating: set[Group]
    logging: set[Group]


def _spans(run: RunTimes, on_device: bool) -> Iterable[_Span]:
    """The run in pieces that sum to its time."""
    if run.before_us:
        yield _Span("start", "startup", run.before_us)
    within = _evaluating_in_steps(run)
    steps = _step_groups(run) - within
    evaluating = {_group(one) for one in run.samples if _is_evaluation(one, steps)}
    groups = _Groups(steps | (_rare(run) - evaluating - within), within, evaluating | within, _logging(run))
    for kind, spent_us in run.spent_us.items():
        mine = [one for one in run.samples if one.kind == kind and one.hits]
        hits = sum(one.hits for one in mine)
        if not hits:
            yield _Span(kind, _UNSEEN.get(kind, "training"), spent_us)
            continue
        parts = [_part(one, groups, on_device) for one in mine]
        outside = [one.hits for one, part in zip(mine, parts, strict=True) if part != "training"]
        outer_us = spent_us / hits * sum(outside)
        if kind == "long":
            # The clock knows better than samples how much of these steps is what an ordinary one takes.
            outer_us = min(outer_us, max(spent_us - run.usual_us, 0.0))
        if sum(outside) == hits:
            yield _Span(kind, "training", spent_us - outer_us)
        for one, part in zip(mine, parts, strict=True):
            us, of = (spent_us - outer_us, hits - sum(outside)) if part == "training" else (outer_us, sum(outside))
            yield _Span(kind, part, us * one.hits / of, one, hits, spent_us)


_UNSEEN = {"start": "startup", "between": "epoch_end", "end": "end"}


def _group(one: RunSamples) -> Group:
    """Samples of one group are at one statement of the loop, or in one function that something else calls."""
    return (one.file, one.function, one.block)


def _step_groups(run: RunTimes) -> set[Group]:
    """Groups that belong to training steps."""
    hits: dict[str, dict[Group, int]] = {"step": defaultdict(int), "long": defaultdict(int)}
    for one in run.samples:
        if one.kind in hits:
            hits[one.kind][_group(one)] += one.hits
    ordinary, long = run.count.get("step", 0), run.count.get("long", 0)
    main = max(_MAIN * sum(hits["step"].values()), _SEEN)
    return {
        group
        for group, seen in hits["step"].items()
        if not long or seen >= main or seen * long >= _OF_THE_STEP * hits["long"].get(group, 0) * ordinary
    }


def _rare(run: RunTimes) -> set[Group]:
    """Statements of long steps that one or two samples hit: any line of an ordinary step may be that.

    Not one that was hit in two of them, in a function that ordinary steps were never sampled in: the loop over steps is
    in another.
    """
    hits: dict[Group, int] = defaultdict(int)
    stretches: dict[Group, int] = defaultdict(int)
    functions = {(one.file, one.function) for one in run.samples if one.kind == "step"}
    for one in run.samples:
        if one.kind == "long":
            hits[_group(one)] += one.hits
            stretches[_group(one)] += one.stretches
    outside = {group for group, often in stretches.items() if often > 1 and functions and group[:2] not in functions}
    return {group for group, seen in hits.items() if seen < _SEEN} - outside


def _is_evaluation(one: RunSamples, steps: set[Group]) -> bool:
    """A batch that nothing was trained on goes through a model, or a model in evaluation mode runs outside of steps."""
    marks = set(one.marks)
    if one.kind in ("start", "step"):
        return False
    if marks & {"evaluate"} or ("untrained" in marks and marks & {"fetch", "forward"}):
        return True
    return {"eval_mode", "forward"} <= marks and _group(one) not in steps


def _evaluating_in_steps(run: RunTimes) -> set[Group]:
    """Statements of ordinary steps at which a model runs in evaluation mode that trains elsewhere: no teacher.

    Most samples that stand in a model there are such, and more than a few.
    """
    forward: dict[Group, int] = defaultdict(int)
    evaluated: dict[Group, int] = defaultdict(int)
    for one in run.samples:
        if one.kind == "step" and "forward" in one.marks:
            forward[_group(one)] += one.hits
            evaluated[_group(one)] += one.hits if {"eval_mode", "also_trained"} <= set(one.marks) else 0
    return {group for group, hits in evaluated.items() if hits >= _SEEN and 2 * hits > forward[group]}


def _logging(run: RunTimes) -> set[Group]:
    """Statements that log: a part of what is sampled there is in a package for it."""
    all_hits: dict[Group, int] = defaultdict(int)
    of_loggers: dict[Group, int] = defaultdict(int)
    for one in run.samples:
        all_hits[_group(one)] += one.hits
        # Pictures that a dataset decodes are its samples.
        logs = one.package in _LOGGERS and one.inner[2] not in _OF_DATASETS
        of_loggers[_group(one)] += one.hits if logs else 0
    return {group for group, hits in of_loggers.items() if hits and hits >= _LOGS * all_hits[group]}


def _part(one: RunSamples, groups: _Groups, on_device: bool) -> str:
    """The part of the run that a place belongs to."""
    if one.kind == "start":
        return "startup"
    if named := next((part for mark, part in _NAMED.items() if mark in one.marks), ""):
        return named
    in_step = one.kind == "step" and _group(one) not in groups.within
    if in_step or (one.kind == "long" and (_group(one) in groups.steps or _TRAINS & set(one.marks))):
        return "training"
    if _group(one) in groups.evaluating:
        return "evaluation"
    # On a device, a line that waits for it waits for the steps before it.
    waits = on_device and one.kind == "long" and one.package in ("", "torch")
    return "training" if waits else _of_gap(one, groups)


def _of_gap(one: RunSamples, groups: _Groups) -> str:
    """The part of the run that a place between training steps belongs to."""
    if "compile" in one.marks:
        return "compilation"
    if one.kind == "end":
        return "end"
    if _group(one) in groups.logging:
        return "logging"
    return "epoch_end" if "epoch_end" in one.marks or _group(one) in groups.steps else "other"


def _runs_model(one: RunSamples) -> bool:
    return "forward" in one.marks and one.package != _TRANSFORMS


def _training_forwards(spans: Iterable[_Span]) -> Iterator[Source]:
    """Statements at which a model runs, and no evaluation does."""
    groups: dict[Group, list[_Span]] = defaultdict(list)
    for span in spans:
        if span.samples is not None and span.part in ("other", "logging", "epoch_end"):
            groups[_group(span.samples)].append(span)
    for group, mine in groups.items():
        if any(span.samples and _runs_model(span.samples) for span in mine):
            yield _line(group, mine).source


def _evaluated_us(spans: Iterable[_Span], run: RunTimes) -> dict[Source, float]:
    """Time of evaluations by the line that calls the model, where gradients are of no use."""
    passed = {_group(one) for one in run.samples if "backward" in one.marks}
    found: dict[Source, float] = defaultdict(float)
    for span in spans:
        one = span.samples
        if one and one.call[0] and span.part == "evaluation" and span.kind != "step" and _group(one) not in passed:
            found[Source(*one.call)] += span.us
    return found


def _evaluated(spans: Iterable[_Span]) -> tuple[Evaluated, ...]:
    """Evaluations between steps by the user's innermost line and the kind of work."""
    found: dict[tuple[Source, str], list[_Span]] = defaultdict(list)
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


def _parts(spans: Sequence[_Span], run: RunTimes, whole_us: float) -> dict[str, RunPart]:
    """The parts of some spans by their ids, those without time left out."""
    found = {}
    for part in PARTS:
        mine = [span for span in spans if span.part == part]
        us = sum(span.us for span in mine)
        if us > 0:
            found[part] = RunPart(part, us, us / whole_us, _error_us(mine), _times(part, mine, run), _lines(mine))
    return found


def _error_us(spans: Sequence[_Span]) -> float:
    """Standard error of the time of these spans, of which samples tell the share of each kind."""
    squares = 0.0
    for kind in {span.kind for span in spans}:
        hits = sum(span.samples.hits for span in spans if span.kind == kind and span.samples)
        of, kind_us = next(((span.of, span.kind_us) for span in spans if span.kind == kind and span.of), (0, 0.0))
        if of:
            # Agresti and Coull: of few samples that all say the same, the others may yet say something else.
            share = (hits + 2) / (of + 4)
            squares += kind_us**2 * share * (1 - share) / (of + 4)
    return math.sqrt(squares)


def _times(part: str, spans: Sequence[_Span], run: RunTimes) -> float | None:
    """How often the loop was left for this part; None where it was not sampled."""
    if part == "training":
        return run.count.get("step", 0) + run.count.get("long", 0)
    if part == "worker_restarts":
        return run.restarts or None
    most = max((span.samples for span in spans if span.samples), key=lambda one: one.hits, default=None)
    return _visits(most, run.count.get(most.kind, 0)) if most else None


def _visits(one: RunSamples, stretches: int) -> float:
    """In how many stretches the loop was at a place, where not every visit was long enough to be sampled.

    With n visits that are sampled m times each on average, n m samples lie in n (1 - exp(-m)) stretches.
    """
    least, most = 0.0, 50.0
    while most - least > _EXACT:
        mean = (least + most) / 2
        if mean / -math.expm1(-mean) < one.hits / max(one.stretches, 1):
            least = mean
        else:
            most = mean
    return float(min(max(round(one.hits / most), one.stretches), stretches))


def _lines(spans: Sequence[_Span]) -> tuple[RunLine, ...]:
    """The statements in which most of the time passed."""
    groups: dict[Group, list[_Span]] = defaultdict(list)
    for span in spans:
        if span.samples is not None and span.samples.file:
            groups[_group(span.samples)].append(span)
    lines = [_line(group, mine) for group, mine in groups.items()]
    return tuple(sorted(lines, key=lambda line: -line.us)[:_MOST_LINES])


def _line(group: Group, spans: Sequence[_Span]) -> RunLine:
    """The line of a statement; of a loop its first one, of a function that is called the one with most samples."""
    file, function, block = group
    at: dict[int, float] = defaultdict(float)
    inner: dict[tuple[str, int, str], float] = defaultdict(float)
    loops: dict[tuple[str, int, str], float] = defaultdict(float)
    for span in spans:
        if span.samples is not None:
            at[span.samples.line] += span.us
            inner[span.samples.inner] += span.us
            loops[span.samples.loop] += span.us
    line = block if block and len(at) > 1 else max(at, key=lambda one: at[one])
    most = max(inner, key=lambda one: inner[one])
    guards = {span.samples.guard for span in spans if span.samples is not None}
    guard = Source(file, guards.pop(), function) if len(guards) == 1 and 0 not in guards else None
    us = sum(span.us for span in spans)
    turns = max(loops, key=lambda one: loops[one])
    below = [Source(*one) if one[0] else None for one in (most, turns)]
    return RunLine(Source(file, line, function), us, below[0], guard, below[1])

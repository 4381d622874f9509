"""Stretches of a run, each given to the part of the run that its samples show: a step, an evaluation, a checkpoint.

The clock tells how long stretches of each kind took, samples of the loop's stack what ran in them. A place that is
sampled in ordinary training steps as well belongs to the step, however long a step was in which it was seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from msgspec import Struct

from advisor.capture.record import RunSamples, RunTimes

# Packages that write down how a training goes, or draw it.
_LOGGERS = (
    *("logging", "tqdm", "rich", "loguru", "tensorboard", "tensorboardX", "wandb", "mlflow", "neptune", "comet_ml"),
    *("clearml", "aim", "visdom", "sacred", "matplotlib", "seaborn", "plotly", "PIL", "imageio", "csv", "json"),
)
_OF_DATASETS = ("__getitem__", "__getitems__")
# Work that is told by what is on the stack, wherever that is.
_NAMED = {"save": "checkpoints", "workers": "worker_restarts", "first_batch": "worker_restarts"}
# What only a training step runs, however long other work on the machine holds it up there.
_TRAINS = {"backward", "optimizer"}
# What shows an evaluation at a statement that trains as well: its metrics follow a batch that nothing was trained on.
_EVALUATES = {"evaluate", "untrained"}
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
# The part of stretches in which nothing was sampled.
_UNSEEN = {"start": "startup", "between": "epoch_end", "end": "end"}

Group = tuple[str, str, int]


class Span(Struct, frozen=True):
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
    """Statements that belong to training steps, that evaluate between them or within each, that log.

    both: that train and evaluate, as a call of a library's `fit` does: there each sample tells by itself
    """

    steps: set[Group]
    within: set[Group]
    evaluating: set[Group]
    both: set[Group]
    logging: set[Group]


def spans_of(run: RunTimes, on_device: bool) -> Iterable[Span]:
    """The run in pieces that sum to its time."""
    if run.before_us:
        yield Span("start", "startup", run.before_us)
    within = _evaluating_in_steps(run)
    steps = _step_groups(run) - within
    evaluating = {group_of(one) for one in run.samples if _is_evaluation(one, steps)}
    both = {group_of(one) for one in run.samples if _is_marked(one)} & (steps | _trained_at(run))
    steps |= both | (_rare(run) - evaluating - within)
    groups = _Groups(steps, within, (evaluating - both) | within, both, _logging(run))
    for kind, spent_us in run.spent_us.items():
        mine = [one for one in run.samples if one.kind == kind and one.hits]
        hits = sum(one.hits for one in mine)
        if not hits:
            yield Span(kind, _UNSEEN.get(kind, "training"), spent_us)
            continue
        parts = [_part(one, groups, on_device) for one in mine]
        outside = [one.hits for one, part in zip(mine, parts, strict=True) if part != "training"]
        outer_us = spent_us / hits * sum(outside)
        if kind == "long":
            outer_us = min(outer_us, beyond_the_ordinary(run))
        if sum(outside) == hits:
            yield Span(kind, "training", spent_us - outer_us)
        for one, part in zip(mine, parts, strict=True):
            us, of = (spent_us - outer_us, hits - sum(outside)) if part == "training" else (outer_us, sum(outside))
            yield Span(kind, part, us * one.hits / of, one, hits, spent_us)


def beyond_the_ordinary(run: RunTimes) -> float:
    """Time of long steps beyond what ordinary ones take: the clock knows that better than samples do.

    A step that waits for a core becomes long, and is sampled wherever it waits. So what it takes with a core counts;
    waiting prolongs what else is in a long step as it does the step itself.
    """
    spent_us, usual_us = run.spent_us.get("long", 0.0), run.usual_us
    own_us = max(spent_us - run.queued_us.get("long", 0.0), 0.0)
    if (waited_us := run.queued_us.get("step", 0.0)) and run.count.get("step"):
        ordinary_us = max(run.spent_us.get("step", 0.0) - waited_us, 0.0) / run.count["step"]
        usual_us = min(usual_us, run.count.get("long", 0) * ordinary_us)
    return max(own_us - usual_us, 0.0) * spent_us / own_us if own_us else 0.0


def group_of(one: RunSamples) -> Group:
    """Samples of one group are at one statement of the loop, or in one function that something else calls."""
    return (one.file, one.function, one.block)


def _step_groups(run: RunTimes) -> set[Group]:
    """Groups that belong to training steps."""
    hits: dict[str, dict[Group, int]] = {"step": defaultdict(int), "long": defaultdict(int)}
    for one in run.samples:
        if one.kind in hits:
            hits[one.kind][group_of(one)] += one.hits
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
            hits[group_of(one)] += one.hits
            stretches[group_of(one)] += one.stretches
    outside = {group for group, often in stretches.items() if often > 1 and functions and group[:2] not in functions}
    return {group for group, seen in hits.items() if seen < _SEEN} - outside


def _trained_at(run: RunTimes) -> set[Group]:
    """Statements that run backward passes or updates: no step that was sampled there need have been an ordinary one."""
    return {group_of(one) for one in run.samples if one.kind != "start" and _TRAINS & set(one.marks)}


def _is_marked(one: RunSamples) -> bool:
    """Outside of ordinary steps, a framework evaluates, or a batch that nothing was trained on goes through a model."""
    marks = set(one.marks)
    if one.kind in ("start", "step"):
        return False
    return "evaluate" in marks or ("untrained" in marks and bool(marks & {"fetch", "forward"}))


def _is_evaluation(one: RunSamples, steps: set[Group]) -> bool:
    """A sample that shows one, or a model in evaluation mode that runs outside of steps."""
    if one.kind in ("start", "step"):
        return False
    return _is_marked(one) or ({"eval_mode", "forward"} <= set(one.marks) and group_of(one) not in steps)


def _evaluating_in_steps(run: RunTimes) -> set[Group]:
    """Statements of ordinary steps at which a model runs in evaluation mode that trains elsewhere: no teacher.

    Most samples that stand in a model there are such, and more than a few.
    """
    forward: dict[Group, int] = defaultdict(int)
    evaluated: dict[Group, int] = defaultdict(int)
    for one in run.samples:
        if one.kind == "step" and "forward" in one.marks:
            forward[group_of(one)] += one.hits
            evaluated[group_of(one)] += one.hits if {"eval_mode", "also_trained"} <= set(one.marks) else 0
    return {group for group, hits in evaluated.items() if hits >= _SEEN and 2 * hits > forward[group]}


def _logging(run: RunTimes) -> set[Group]:
    """Statements that log: a part of what is sampled there is in a package for it."""
    all_hits: dict[Group, int] = defaultdict(int)
    of_loggers: dict[Group, int] = defaultdict(int)
    for one in run.samples:
        all_hits[group_of(one)] += one.hits
        # Pictures that a dataset decodes are its samples.
        logs = one.package in _LOGGERS and one.inner[2] not in _OF_DATASETS
        of_loggers[group_of(one)] += one.hits if logs else 0
    return {group for group, hits in of_loggers.items() if hits and hits >= _LOGS * all_hits[group]}


def _part(one: RunSamples, groups: _Groups, on_device: bool) -> str:
    """The part of the run that a place belongs to."""
    if one.kind == "start":
        return "startup"
    if named := next((part for mark, part in _NAMED.items() if mark in one.marks), ""):
        return named
    if group_of(one) in groups.both and one.kind not in ("start", "step") and _EVALUATES & set(one.marks):
        return "evaluation"
    in_step = one.kind == "step" and group_of(one) not in groups.within
    if in_step or (one.kind == "long" and (group_of(one) in groups.steps or _TRAINS & set(one.marks))):
        return "training"
    if group_of(one) in groups.evaluating:
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
    if group_of(one) in groups.logging:
        return "logging"
    return "epoch_end" if "epoch_end" in one.marks or group_of(one) in groups.steps else "other"

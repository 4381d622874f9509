"""One rank evaluates while the others wait.

## What it looks at
Runs of several ranks in which one rank spends a tenth of the time or more on evaluation and the others evaluate
nothing, but lose as much time outside of ordinary training steps: in a barrier, or in the next collective. Needs the
records of all ranks (`advisor run -- torchrun …`).

## Why it costs time
The other ranks, and their devices, do nothing meanwhile. With N ranks, N - 1 of N wait for as long as evaluation takes.

## How to fix it
Let each rank evaluate its share: give the loader a `DistributedSampler(dataset, shuffle=False)`, or take every N-th
batch, sum numerators and counts of the metrics on each rank, and combine them with one `all_reduce`. Call the model
without its wrapper (`model.module`), so that it does not communicate. The sampler repeats a few samples where they do
not divide evenly; a metric that must be exact leaves these out.

## When to leave it
Metrics that need all outputs at once and cannot be summed. Ranks with other tasks by design, if their time is not what
limits the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from advisor.api import Example, Finding, Fix, Missing, RankRecord, Ranks, WatchedRun, draw

from ..shared._places import place
from ..shared._run_parts import each_hour, finding_of, is_known, saving_of, watched
from ..shared._words import count, percent
from ._evaluation_loaders import MIN_SHARE, run_facts

# Work between steps that says what it is: nobody waits in it.
_NAMED = ("evaluation", "checkpoints", "worker_restarts", "logging", "compilation")


def check(
    ranks: Ranks,
    *,
    min_share: float = MIN_SHARE,  # of the loop, for evaluation: half of less is within the noise between runs
    max_other: float = 0.1,  # of that time, for evaluation on any other rank: more is no waiting
    min_waited: float = 0.5,  # of that time, lost on each other rank: samples tell it apart from ordinary steps roughly
    host_part: float = 0.5,  # of the saving that is sure on hosts: ranks that evaluate at once share cores and memory
) -> Iterator[Finding]:
    records = [facts.record for facts in ranks.facts]
    if not ranks.whole or any(one is None or one.run is None for one in records):
        raise Missing(WatchedRun.missing)
    known = [(one, WatchedRun.compute(one)) for one in records if one is not None]
    at = max(range(len(known)), key=lambda one: _evaluated_us(known[one][1]))
    run = known[at][1]
    part = run.loop.get("evaluation")
    if part is None or not part.lines or not is_known(part, run, min_share):
        return
    others = known[:at] + known[at + 1 :]
    if any(_evaluated_us(other) > max_other * part.us for _, other in others):
        return
    if any(_lost_us(record, other) < min_waited * part.us for record, other in others):
        return
    most = 1 - 1 / ranks.world_size
    call = part.lines[0].source
    waits = "the other one waits" if len(others) == 1 else f"the other {count(len(others))} wait"
    found = finding_of(
        run,
        part,
        f"Rank {ranks.ranks[at]} evaluates alone{place(call)} while {waits} for it: evaluation takes "
        f"{percent(part.us / run.loop_us)} of {watched(run)}. Divided between the {count(ranks.world_size)} ranks, it "
        f"would save {percent(most * part.us / run.loop_us)} of the run, {each_hour(most * part.us / run.loop_us)}.",
        saving_of(
            run,
            part,
            most if ranks.on_device else host_part * most,
            most,
            "high: one share of N; low: on hosts half of that, since ranks that evaluate at once share cores",
        ),
        _DIVIDED,
        "medium",  # whether a metric can be summed is the user's to say
    )
    yield replace(found, where=tuple(dict.fromkeys((call, *found.where))), ranks=(ranks.ranks[at],))


def _evaluated_us(run: WatchedRun) -> float:
    part = run.loop.get("evaluation")
    return part.us if part else 0.0


def _lost_us(record: RankRecord, run: WatchedRun) -> float:
    """Time of the loop that is neither in ordinary training steps nor in work that is known, µs."""
    times = record.run
    ordinary_us = times.spent_us.get("step", 0.0) + times.usual_us if times else 0.0
    named_us = sum(part.us for name, part in run.loop.items() if name in _NAMED)
    return run.loop_us - ordinary_us - named_us


_DIVIDED = Fix(
    "Divide the validation set between the ranks",
    "numerics",
    "if rank == 0:\n    loss = evaluate(model.module, val_loader)\ndist.barrier()",
    "val_loader = DataLoader(val_set, batch_size, sampler=DistributedSampler(val_set, shuffle=False))\n"
    "totals = evaluate(model.module, val_loader)  # sums and counts, on every rank\n"
    "dist.all_reduce(totals)",
)
_DRAWN = draw("step [1        ][2        ]\ncpu  [F   ][B  ][F   ][B  ]", us=1000, world_size=2)


def _waits(seconds: float, *marks: str) -> dict[str, Any]:
    """The run of a second rank, which stands at a line between steps for so long."""
    facts = run_facts(seconds, {}, ranks=2)
    facts["run"]["samples"][1] |= {"marks": list(marks), "package": "torch", "line": 90, "block": 90}
    return facts | {"rank": 1}


EXAMPLES = [
    Example(
        "rank 0 evaluates for a third of the run, rank 1 stands at a barrier",
        _DRAWN,
        others=(_DRAWN,),
        facts=run_facts(30.0, {}, ranks=2),
        other_facts=(_waits(30.0),),
        saves_us=(12_000, 27_000),
        says=("Rank 0 evaluates alone at train.py:88", "33 %", "17 % of the run"),
    ),
    Example(
        "both ranks evaluate",
        _DRAWN,
        others=(_DRAWN,),
        facts=run_facts(30.0, {}, ranks=2),
        other_facts=(_waits(30.0, "forward", "untrained"),),
    ),
    Example(
        "rank 1 saves checkpoints meanwhile",
        _DRAWN,
        others=(_DRAWN,),
        facts=run_facts(30.0, {}, ranks=2),
        other_facts=(_waits(30.0, "save"),),
        near_miss=True,
    ),
    Example(
        "evaluation takes a twentieth of the run",
        _DRAWN,
        others=(_DRAWN,),
        facts=run_facts(3.0, {}, ranks=2),
        other_facts=(_waits(3.0),),
        near_miss=True,
    ),
    Example("bare traces", _DRAWN, others=(_DRAWN,), skipped="was not recorded"),
]

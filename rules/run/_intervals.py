"""How often a script evaluates and saves: the line that says so, and the arguments of a framework that runs the loop.

Sources: Lightning's `Trainer` (an integer of `val_check_interval` counts training batches, and is at most those of an
epoch) and `ModelCheckpoint(every_n_train_steps=)`; Transformers' `TrainingArguments`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from advisor.api import Fix, RankRecord, RunPart, Source, WatchedRun

from ..shared._places import set_at
from ..shared._run_parts import MOST_PLACES, lines_of


class Interval(Struct, frozen=True):
    """How often something happens.

    setting     the line that says how often, as `Settings.set_at` names it
    frameworks  by framework its call for so many steps, and in an epoch
    """

    setting: str
    frameworks: Mapping[str, Callable[[int, float], str]]


def _trainer(steps: int, in_epoch: float) -> str:
    if steps <= in_epoch:
        return f"Trainer(..., val_check_interval={steps})"
    return f"Trainer(..., check_val_every_n_epoch={math.ceil(steps / in_epoch)})"


EVALUATIONS = Interval(
    "evaluation_every",
    {
        "lightning": _trainer,
        "transformers": lambda steps, _: f'TrainingArguments(..., eval_strategy="steps", eval_steps={steps})',
    },
)
CHECKPOINTS = Interval(
    "checkpoint_every",
    {
        "lightning": lambda steps, _: f"ModelCheckpoint(..., every_n_train_steps={steps})",
        "transformers": lambda steps, _: f'TrainingArguments(..., save_strategy="steps", save_steps={steps})',
    },
)


def places_of(part: RunPart, record: RankRecord | None, interval: Interval) -> tuple[Source, ...]:
    """Where to change how often: the line that says it, and the lines that a part of the run passes in.

    It comes first where a framework runs the loop, or an `if` of the script asks for the number; where neither is
    known, such a number may be that of something else, and follows the first line.
    """
    lines, said = lines_of(part), set_at(record.settings if record else None, interval.setting)
    if _framework(record) in interval.frameworks:
        return (*said, *lines)
    asked = bool(part.lines) and part.lines[0].guard is not None
    every = (*said, *lines) if asked else (*lines[:1], *said, *lines[1:])
    return tuple(dict.fromkeys(every))[:MOST_PLACES]


def happens_at(part: RunPart, record: RankRecord | None, interval: Interval) -> Source | None:
    """The line at which it happens, as a message names it: that of the loop, unless a framework runs that."""
    where = places_of(part, record, interval) if _framework(record) in interval.frameworks else lines_of(part)
    return where[0] if where else None


def worded(fix: Fix, record: RankRecord | None, interval: Interval, run: WatchedRun, now: int, then: int) -> Fix:
    """The fix with the framework's call in place of a condition in the loop. now, then: steps from one to the next."""
    call, in_epoch = interval.frameworks.get(_framework(record)), run.steps / (run.epochs + 1)
    return replace(fix, before=call(now, in_epoch), after=call(then, in_epoch)) if call else fix


def _framework(record: RankRecord | None) -> str:
    return (record.settings.framework or "") if record else ""

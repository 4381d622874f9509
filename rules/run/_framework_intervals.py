"""How often a framework that runs the loop evaluates and saves: its own arguments, and the script's line with them.

Sources: Lightning's `Trainer` (an integer of `val_check_interval` counts training batches, and is at most those of an
epoch) and `ModelCheckpoint(every_n_train_steps=)`; Transformers' `TrainingArguments`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from advisor.api import Fix, RankRecord, Source, WatchedRun

from ..shared._places import set_at

# Framework -> its arguments, the one that counts first, and the call for so many steps, of so many in an epoch.
Options = Mapping[str, tuple[tuple[str, ...], Callable[[int, float], str]]]


def _trainer(steps: int, in_epoch: float) -> str:
    if steps <= in_epoch:
        return f"Trainer(..., val_check_interval={steps})"
    return f"Trainer(..., check_val_every_n_epoch={math.ceil(steps / in_epoch)})"


EVALUATIONS: Options = {
    "lightning": (("val_check_interval", "check_val_every_n_epoch"), _trainer),
    "transformers": (
        ("eval_steps", "eval_strategy"),
        lambda steps, _: f'TrainingArguments(..., eval_strategy="steps", eval_steps={steps})',
    ),
}
CHECKPOINTS: Options = {
    "lightning": (
        ("every_n_train_steps",),
        lambda steps, _: f"ModelCheckpoint(..., every_n_train_steps={steps})",
    ),
    "transformers": (
        ("save_steps", "save_strategy"),
        lambda steps, _: f'TrainingArguments(..., save_strategy="steps", save_steps={steps})',
    ),
}


def set_by(record: RankRecord | None, options: Options) -> tuple[Source, ...]:
    """The line that gives the framework's argument; empty where the script runs its own loop, or nobody saw it."""
    names = options[_framework(record)][0] if _framework(record) in options else ()
    return set_at(record.settings, *names) if record else ()


def worded(fix: Fix, record: RankRecord | None, options: Options, run: WatchedRun, now: int, then: int) -> Fix:
    """The fix with the framework's call in place of a condition in the loop. now, then: steps from one to the next."""
    if _framework(record) not in options:
        return fix
    call, in_epoch = options[_framework(record)][1], run.steps / (run.epochs + 1)
    return replace(fix, before=call(now, in_epoch), after=call(then, in_epoch))


def _framework(record: RankRecord | None) -> str:
    return (record.settings.framework or "") if record and record.settings else ""

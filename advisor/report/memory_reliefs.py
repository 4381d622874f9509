"""What would free memory at the peak: bytes of recorded blocks, at most, since another instant becomes the peak."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.analyses.costs.live_memory import KINDS, LiveMemory, within
from advisor.analyses.step.phases import Phases
from advisor.model import MemoryRelief, ModuleTable
from advisor.trace.events import Category, Trace

_MOST_MODULES = 3
# What optimizers call that update all parameters in one call.
_TOGETHER = "aten::_foreach_"


def of_activations(live: LiveMemory, modules: ModuleTable | None) -> Iterator[MemoryRelief]:
    """Checkpointing of the modules that keep most for the backward pass."""
    rows = {row.path: row for row in modules.rows} if modules else {}
    kept = live.at_peak & live.saved & (live.kind == KINDS.index("activations")) & (live.module >= 0)
    by_module = np.zeros(len(live.modules), np.int64)
    np.add.at(by_module, live.module[kept], live.blocks.size[kept])
    for at in np.argsort(-by_module, kind="stable")[:_MOST_MODULES].tolist():
        if by_module[at]:
            path = live.modules[at]
            cost = rows[path].forward_own_us if path in rows else None
            yield MemoryRelief(f"Checkpoint the activations of `{path}`", int(by_module[at]), "exact", cost)


def of_kinds(kinds: dict[str, int], full: bool) -> Iterator[MemoryRelief]:
    """A smaller batch, and a smaller state. full: all optimizer state is known to be of 32 bits."""
    if kinds["activations"] + kinds["input"]:
        yield MemoryRelief("Halve the batch", (kinds["activations"] + kinds["input"]) // 2, "semantics")
    if kinds["optimizer"] and full:
        yield MemoryRelief("Keep the optimizer state in 8 bits", kinds["optimizer"] * 3 // 4, "numerics")


def of_optimizer(live: LiveMemory, trace: Trace, phases: Phases) -> Iterator[MemoryRelief]:
    """One parameter after the other, where the peak lies in an optimizer step that updates all of them together.

    The largest of its temporaries stays: a step needs it for one parameter as well.
    """
    if not within(phases.optimizer, np.array([live.peak_ns]))[0]:
        return
    span = phases.optimizer[np.searchsorted(phases.optimizer[:, 0], live.peak_ns, side="right") - 1]
    events = trace.events
    inside = (events.start_ns >= span[0]) & (events.start_ns < span[1])
    if not (inside & events.of(Category.CPU_OP) & events.named(_TOGETHER)).any():
        return
    here = live.at_peak & (live.kind == KINDS.index("temporaries")) & (live.blocks.born_ns >= span[0])
    sizes = live.blocks.size[here]
    if len(sizes) > 1:
        title = "Set `foreach=False` in the optimizer, which makes its step slower"
        yield MemoryRelief(title, int(sizes.sum() - sizes.max()), "numerics")

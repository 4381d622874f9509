"""Look-ups in table after table beside a device: what its kernels and their launches take that those of one do not."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.api import ELEMENTWISE, GEMM, GRADIENT_STORE, Drawing, Ev, Intervals, Ints, Price, Saving

from ...shared._examples import node, op, two_steps
from ...shared._listed import Listed, as_lists
from ._look_ups import LookUps, runs_of_look_ups

# Merging fewer saves less than the change is worth, and so do less than 3 % of the step.
FEWEST, WORTH = 8, 0.03
# What is left of a row of look-ups: indices with their offsets, the look-up, its node, the gradient that is stored.
_LEFT = 4
_HOW = (
    "low: nothing, if something else delays the device as long; high: one look-up, at what these kernels take beyond "
    "their start"
)


class TablesOnDevice(Struct, frozen=True, eq=False):
    """Rows of look-ups, each in a table of its own, beside a device; the tables may be of any size.

    A joint table has as many rows, and so has its gradient: what a device moves is the same in fewer kernels.

    found       the look-ups of each row of them;  work: what else is theirs
    listed      all of them as one call for each row
    kernels_us  what they launch takes, µs per profiled step
    told        whether they are worth telling: then other rules leave their waits to that
    """

    found: tuple[Ints, ...]
    work: LookUps
    listed: Listed
    saving: Saving
    kernels_us: float
    told: bool

    @classmethod
    def of(cls, price: Price, fewest: int, least: float) -> TablesOnDevice | None:
        """Those of at least so many tables; None where no gradient of most is stored."""
        found = [one for one in runs_of_look_ups(price.ops) if len(one) >= fewest] if price.on_device else []
        work = LookUps.of(price.ops, found)
        if work is None or work.stores < fewest * len(found):
            return None
        listed = as_lists(price, None, work.rows, _LEFT * len(found))
        saving = listed.saving(price, _HOW)
        kernels_us = price.ops.device_us(work.rows)
        return cls(tuple(found), work, listed, saving, kernels_us, saving.high_us >= least * price.scale.step_us)


class ToldTables(Struct, frozen=True, eq=False):
    """When the host looks up in tables that `separate-tables` tells, and when it goes back through them."""

    spans: Intervals

    @classmethod
    def compute(cls, price: Price) -> ToldTables:
        """None of these spans where it tells nothing."""
        tables = TablesOnDevice.of(price, FEWEST, WORTH)
        return cls(tables.work.spans if tables and tables.told else np.empty((0, 2), np.int64))


def drawn_tables(
    *, tables: int = 8, rows: int = 50, width: int = 8, other: int = 8, gpu: str = "", fill: float = 0.02
) -> Drawing:
    """Look-ups, a layer (A), and their nodes, each with a gradient that is stored (S). other: every second width.

    gpu: what a device does in a step, as long a lane as the host's;  fill: of its boxes, what look-ups' kernels take.
    """
    names = "CDEGHIJK"[:tables]
    lane = "".join(f"[{name}]" for name in names) + "[A ][Z ]"
    lane += "".join(f"[{name.lower()}][S]" for name in reversed(names)) + "[O ]"
    ops: dict[str, Any] = {"A": op("linear"), "Z": node(99), "S": Ev(GRADIENT_STORE)}
    for at, name in enumerate(names):
        ops[name] = op("embedding", [rows, other if at % 2 else width], [256], number=at + 1)
        ops[name.lower()] = node(at + 1, "EmbeddingBackward0")
    if gpu:
        # Without kernels of their own (Q) all that is drawn is launched by the first look-up.
        launching = (*names, *names.lower(), "A") if "Q" in gpu else ("C",)
        ops = {name: replace(one, launches="kernel" if name in launching else "") for name, one in ops.items()}
        ops["X"] = GEMM
        if "Q" in gpu:
            ops["Q"] = Ev(ELEMENTWISE.name, "kernel", fill=fill)
    return two_steps(lane, gpu=gpu, **ops)


# Of 8 look-ups, of the layer, and of 8 nodes: each is over before the host has launched the next.
KERNELS = f" {8 * '[Q]'}[X     ]{8 * '[Q]   '}"
ONE_BY_ONE = drawn_tables(gpu=KERNELS)

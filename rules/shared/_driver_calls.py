"""Calls of the driver that a training in steady state does not make, and what a step saves without them."""

from __future__ import annotations

from msgspec import Struct

from advisor.api import (
    FORWARD,
    Example,
    Finding,
    Fix,
    GpuBusy,
    Ints,
    Lines,
    Price,
    Saving,
    Source,
    draw,
    edits,
    intersect,
    subtract,
    total,
)

from ._places import first_line


class DriverCalls(Struct, frozen=True):
    """Such calls.

    us     profiled µs per step that they take
    idle_us   un-profiled µs per step in which the device idles meanwhile; None without a device
    where  the line of the first whose line is known
    """

    us: float
    idle_us: float | None
    saving: Saving
    where: Source | None

    def finding(self, message: str, facts: dict[str, object], fix: Fix) -> Finding:
        """What a rule says of them."""
        return Finding(
            message=message,
            saving=self.saving,
            where=(self.where,) if self.where else (),
            facts={**facts, "calls_us": self.us},
            fix=fix,
            at_most="medium",
            measured_us=self.idle_us,
        )


def driver_calls(price: Price, busy: GpuBusy, lines: Lines, rows: Ints, min_share: float) -> DriverCalls | None:
    """The calls in these rows; None where they are none, or less than this share of the step at best."""
    events, steps = price.ops.events, price.ops.steps
    if not len(rows):
        return None
    spans = intersect(events.covered(rows), steps.window)
    spent_us = steps.of_window_us(total(spans))
    idle_us = steps.of_window_us(total(subtract(spans, busy.busy))) * busy.rest
    how = "low: the device is the bottleneck anyway; high: the step without these calls"
    saving = price.saving([], [edits.remove(rows)], (), how, model_us=(0.0, idle_us), bound_us=spent_us)
    if saving.high_us < min_share * price.scale.step_us:
        return None
    return DriverCalls(
        spent_us, price.scale.scaled(idle_us) if price.on_device else None, saving, first_line(lines, rows)
    )


KEPT = Example(
    "memory is kept",
    draw(
        """
        step   [1                         ][2                         ]
        cpu    [F  ][G  ]                   [F  ][G  ]
        gpu 7   [K   ][K  ]                  [K   ][K  ]
        """,
        us=100,
        G=FORWARD,
    ),
)

"""The cost of a step by line of the user's code."""

from __future__ import annotations

from msgspec import Struct

from advisor.model.source import Source


class LineShare(Struct, frozen=True):
    """One line of the user's code and the share of the un-profiled step that it takes.

    With a device, what the device works for it; else its time on the training loop's thread. The time of other lines of
    the user's that it calls is theirs. That of the backward pass counts for the line whose forward operators caused it.

    low, high   the share; the ends differ by how well it is known what recording its operators took
    backward    which part of that is the backward pass, 0 to 1
    runs        how often it runs per step, 0 if that is not known
    ops         with a device its work (kernels, copies), else operators, per step; with those of its backward pass
    """

    where: Source
    low: float
    high: float
    backward: float
    runs: float
    ops: float

"""Cost by module of the model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModuleCost:
    """What a module of the model costs per step, the modules inside it included; own: outside of them.

    Times are of profiled steps, as the breakdown's; shares are of the profiled step. None is not known: the module's
    forward was not seen (`calls` is 0), nothing links work to it, or the trace has no shapes.

    path        as in the model (`encoder.layers.0.self_attn`); in `folded` rows `encoder.layers.0-11`
    members     how many modules of one kind this row sums up
    depth       in `folded` rows: how many of the rows above this one lies in
    parameters  of the module and those inside it; bytes likewise
    flops       of its forward per step: matrix products, convolutions and attention
    forward_us  of the loop's thread;  backward_us: of the autograd nodes that its forward ops made
    device_us   of the device work that its forward and its backward started; None without a device
    low_us, high_us  forward and backward without the profiler
    """

    path: str
    kind: str
    members: int = 1
    depth: int = 0
    calls: float = 0.0
    parameters: int | None = None
    parameter_bytes: int | None = None
    flops: float | None = None
    forward_us: float | None = None
    forward_own_us: float | None = None
    backward_us: float | None = None
    backward_own_us: float | None = None
    device_us: float | None = None
    device_own_us: float | None = None
    share: float | None = None
    own_share: float | None = None
    device_share: float | None = None
    low_us: float | None = None
    high_us: float | None = None


@dataclass(frozen=True, slots=True)
class ModuleTable:
    """Cost by module, of one rank.

    steps     profiled steps that ran the ops of the step whose modules were recorded; all figures are of these
    why       why nothing is known, where no module has a time
    rows      every module, in the model's order (of very many the costliest);  left_out: how many more there are
    folded    the costliest as a tree in which equal neighbours are one row
    """

    rank: int = 0
    steps: int = 0
    why: str = ""
    rows: tuple[ModuleCost, ...] = ()
    left_out: int = 0
    folded: tuple[ModuleCost, ...] = ()

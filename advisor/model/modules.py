"""Cost by module of the model."""

from __future__ import annotations

from msgspec import Struct


class ModuleCost(Struct, frozen=True):
    """Cost of a module per step, including its submodules; own: without them.

    Times are those of profiled steps, as in the breakdown; shares are of the profiled step. None means not known: the
    module's forward did not run (`calls` is 0), nothing links work to it, or the trace has no shapes.

    path        as in the model (`encoder.layers.0.self_attn`); in `folded` rows `encoder.layers.0-11`
    members     number of modules of one kind that this row sums
    depth       in `folded` rows: nesting level
    parameters  of the module and its submodules; bytes likewise
    flops       of its forward pass per step: matrix products, convolutions and attention
    forward_us  on the loop's thread;  backward_us: of the autograd nodes that its forward ops recorded
    device_us   device work launched by its forward and backward pass; None without a device
    low_us, high_us  forward and backward pass without the profiler
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


class ModuleTable(Struct, frozen=True):
    """Cost by module, of one rank.

    steps     profiled steps with the same ops as the step whose modules were recorded; all figures describe these
    why       why no module has a time
    rows      all modules, in the model's order (if there are very many, the costliest);  left_out: number of others
    folded    the costliest modules as a tree, with equal neighbours merged
    """

    rank: int = 0
    steps: int = 0
    why: str = ""
    rows: tuple[ModuleCost, ...] = ()
    left_out: int = 0
    folded: tuple[ModuleCost, ...] = ()

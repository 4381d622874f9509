"""Many elementwise kernels run one after another instead of fused.

## What it looks at
Sequences of PyTorch's own elementwise and reduction kernels on a stream, with no other kernel between: additions,
activations, casts, means, and LayerNorm among them. Fused, a sequence reads each tensor that comes from elsewhere, and
writes the last one: an activation goes as a whole, an addition keeps the third of its time in which it reads the other
tensor, a norm and the longest kernel keep theirs.

## Why it costs time
Such a kernel does next to no arithmetic: it reads tensors from memory and writes one back, which the next one reads
again. A normalization written in five ops goes through memory ten times where two would do.

## How to fix it
`torch.compile(model)` fuses such sequences automatically. Without a compiler, use existing fused ops: `F.rms_norm`,
`F.layer_norm`, `F.gelu`, `F.scaled_dot_product_attention`.

## When to leave it
Convolutions with batch normalization between them, whose kernels are not counted: of five networks for video that
MMAction2 measured compiled (docs/en/notes/pytorch2.0.md there), a Swin transformer took 19 % less time, ResNet-50s 1 to
22 % more. Models whose shapes change all the time, which would be recompiled over and over, and models for which the
device waits for the host anyway. Kernels of loops whose iterations read from the device are not counted: the compiler
breaks its graph at each read. Not reported where gradients are differentiated again: compiled code does not support
that.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    ELEMENTWISE,
    FORWARD,
    GEMM,
    SYNC,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    GpuBusy,
    Ints,
    Price,
    RepeatedOps,
    Settings,
    Syncs,
    Treatment,
    backward_of,
    draw,
    duration,
    edits,
    starts_in,
)

from ..shared._compiled_regions import differentiated_again
from ..shared._examples import node
from ..shared._op_loops import op_loops
from ..shared._repeated_heads import repeated_heads
from ..shared._words import count, percent
from ._attentions import attentions
from ._sequences import sequences

CONFIRMED = "real traces: Qwen generation on an H100, 60 % of its work in such kernels; ResNets and others far below"


def check(
    price: Price,
    busy: GpuBusy,
    settings: Settings | None,
    syncs: Syncs | None,
    repeated: RepeatedOps | None,
    *,
    min_share: float = 0.1,  # of the step: compiling takes minutes, and every change of a shape takes them again
) -> Iterator[Finding]:
    recorded, steps, scale = price.ops, price.ops.steps, price.scale
    others = np.concatenate((_one_by_one(price), _in_waiting_loops(price, syncs, repeated)))
    found = sequences(recorded, others)
    if not len(found.rows) or differentiated_again(recorded):
        return
    shares = np.unique(found.gone[found.gone > 0]).tolist()
    parts = [(share, found.rows[found.gone == share]) for share in shares]
    if sum(share * price.spent_us(rows) for share, rows in parts) < min_share * steps.step_us:
        return
    how = "low: they cannot be fused; high: each sequence reads and writes no tensor twice"
    saving = price.saving([], [edits.scale(rows, 1 - share) for share, rows in parts], ("compute",), how)
    if saving.high_us < min_share * scale.step_us:
        return
    kernels, runs = len(found.rows), len(np.unique(found.run))
    spent_us = recorded.us(found.rows)
    yield Finding(
        message=(
            f"{count(kernels / steps.count)} elementwise, reduction and normalization kernels a step run in sequences "
            f"of {count(kernels / runs)} on average: {percent(spent_us / busy.us)} of the device's work, "
            f"{duration(scale.scaled(spent_us))} of each step."
        ),
        saving=saving,
        facts={"kernels": kernels / steps.count, "runs": runs / steps.count, "runs_us": spent_us},
        fix=Fix(
            "Fuse them with `torch.compile`",
            "numerics",
            "model = Model()",
            "model = torch.compile(Model())",
            Treatment("compile"),
        ),
        claims=("compute",),
        # Compiled already: what is left is what the compiler could not fuse.
        at_most="low" if settings is not None and settings.compiled else "medium",
    )


def _one_by_one(price: Price) -> Ints:
    """Kernels of loops over lists of tensors, which a compiled model does not contain; copies that repeat heads, one of
    which writes keys, the next values, so that neither reads what the other wrote; and attention op by op, for which
    there is one op (unfused-attention).
    """
    ops = price.ops
    rows = [loop.rows for loop in op_loops(price)]
    inside = [one[1:-1] for one in attentions(ops.trace, ops.nesting, ops.links)]
    behind = backward_of(ops.events, np.concatenate(inside)) if inside else np.empty(0, np.int64)
    return np.concatenate([ops.launched(one) for one in (*rows, repeated_heads(ops)[0], *inside, behind)])


def _in_waiting_loops(price: Price, syncs: Syncs | None, repeated: RepeatedOps | None) -> Ints:
    """Kernels of loops whose iterations wait for the device, forwards and backwards.

    `torch.compile` breaks its graph at each read of a value ("Working with Graph Breaks"): it fuses nothing across
    them, and without the waits (sync-in-loop) the loop goes.
    """
    nothing = np.empty(0, np.int64)
    if syncs is None or repeated is None or not repeated.loops:
        return nothing
    rows = np.array([row for site in syncs.sites if site.from_user for row in site.rows], np.int64)
    waits = starts_in(price.ops.events.start_ns[rows], repeated.spans).sum() / price.ops.steps.count
    return price.ops.launched(repeated.rows) if waits >= repeated.loops[0].iterations else nothing


_ROOT = Ev("void at::native::vectorized_elementwise_kernel<4, at::native::rsqrt_kernel_cuda>", "kernel", times=4)
_MEAN = Ev("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>", "kernel")
_OPS = Ev("aten::mul", times=7)


def _between_products(last: str) -> Drawing:
    return draw(
        """
        step   [1                            ][2                            ]
        cpu    [Q][M][S][V][W                ][Q][M][S][V][W                ]
        gpu 7    [K    ][E        ][P    ][K ]  [K    ][E        ][P    ][K ]
        """,
        us=100,
        Q="aten::bmm",
        M=Ev("aten::mul", times=3),
        S=last,
        V="aten::bmm",
        W=SYNC,
        E=Ev(_ROOT.name, "kernel", times=3),
        P=Ev("void (anonymous namespace)::cunn_SoftMaxForward<8, float, float, float>", "kernel"),
    )


EXAMPLES = [
    Example(
        "a normalisation in five ops",
        draw(
            """
            step   [1                         ][2                         ]
            cpu    [O  ][W                    ][O  ][W                    ]
            gpu 7    [K   ][E       ][M ][K ]    [K   ][E       ][M ][K ]
            """,
            us=100,
            O=_OPS,
            W=SYNC,
            E=_ROOT,
            M=_MEAN,
        ),
        saves_us=(0, 1400),
        says=("sequences of 5",),
    ),
    Example(
        "a normalisation in five ops whose gradients are differentiated again",
        draw(
            """
            step   [1                         ][2                         ]
            cpu    [O  ][B][B][W              ][P  ][C][C][W              ]
            gpu 7    [K   ][E       ][M ][K ]    [K   ][E       ][M ][K ]
            """,
            us=100,
            O=Ev("aten::mul", times=7, args={"Sequence number": 1, "Fwd thread id": 0}),
            P=Ev("aten::mul", times=7, args={"Sequence number": 2, "Fwd thread id": 0}),
            B=node(1, "MulBackward0"),
            C=node(2, "MulBackward0"),
            W=SYNC,
            E=_ROOT,
            M=_MEAN,
        ),
        near_miss=True,
    ),
    Example(
        "an activation after each product",
        draw(
            """
            step   [1                         ][2                         ]
            cpu    [O  ][W                    ][O  ][W                    ]
            gpu 7    [K   ][E ][K   ][E ]        [K   ][E ][K   ][E ]
            """,
            us=100,
            O=Ev("aten::mul", times=4),
            W=SYNC,
        ),
        near_miss=True,
    ),
    Example(
        "a scale, a mask and a cast between the products of attention: for all of it there is one op",
        _between_products("aten::_softmax"),
        near_miss=True,
    ),
    Example(
        "the same between products of which none is of attention",
        _between_products("aten::abs"),
        saves_us=(0, 1400),
        says=("sequences of 3",),
    ),
    Example(
        "two additions of small account",
        draw(
            """
            step   [1                         ][2                         ]
            cpu    [O  ][W                    ][O  ][W                    ]
            gpu 7    [K            ][E ]         [K            ][E ]
            """,
            us=100,
            O=Ev("aten::mul", times=3),
            W=SYNC,
            E=Ev(ELEMENTWISE.name, "kernel", times=2, fill=0.5),
        ),
        near_miss=True,
    ),
    Example(
        "products side by side",
        draw(
            "step [1           ][2           ]\ncpu  [C ][F  ]     [C ][F  ]\ngpu 7  [V ][V   ]    [V ][V   ]",
            us=100,
            C=FORWARD,
            V=GEMM,
        ),
    ),
]

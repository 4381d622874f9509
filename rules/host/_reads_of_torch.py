"""Values that PyTorch reads itself: whether a gradient is finite, for GradScaler and for anomaly detection."""

from __future__ import annotations

import numpy as np

from advisor.api import D2H_PAGEABLE, GEMM, ITEM, Category, Ev, Example, Fix, Price, SyncSite, draw, starts_in, union

from ._waits import READS

_CHECK = "_amp_foreach_non_finite_check_and_unscale_"
_NODE = "autograd::engine::evaluate_function"
_LOOKS = ("aten::any", "aten::_is_any_true")

# With `fused=True` GradScaler hands the flag over on the device (`_step_supports_amp_scaling`), and reads nothing.
SCALER = Fix(
    "Set `fused=True` in the optimizer, to which GradScaler hands its flag on the device",
    "numerics",
    "optimizer = torch.optim.AdamW(model.parameters())\nscaler.step(optimizer)",
    "optimizer = torch.optim.AdamW(model.parameters(), fused=True)\nscaler.step(optimizer)  # reads nothing",
)
ANOMALY = Fix(
    "Turn off anomaly detection, or the hook that reads whether each gradient is finite",
    "exact",
    "torch.autograd.set_detect_anomaly(True)",
    "torch.autograd.set_detect_anomaly(False)  # on again to look for an invalid gradient",
)


def read_by_torch(site: SyncSite, price: Price) -> Fix | None:
    """The change for values that PyTorch reads, by the op before most of the reads; None for those of a script."""
    if site.op not in READS:
        return None
    events = price.ops.events
    rows, nodes = np.array(site.rows, int), np.flatnonzero(events.named(_NODE))
    ops = np.flatnonzero(events.of(Category.CPU_OP) & ~events.named(_NODE))
    scaler = anomaly = 0
    for thread in np.unique(events.thread[rows]).tolist():
        mine, before = rows[events.thread[rows] == thread], ops[events.thread[ops] == thread]
        before = before[np.argsort(events.end_ns[before], kind="stable")]
        at = np.searchsorted(events.end_ns[before], events.start_ns[mine], side="right") - 1
        mine, before = mine[at >= 0], before[at[at >= 0]]
        scaler += int(events.named(_CHECK)[before].sum())
        own = nodes[events.thread[nodes] == thread]
        within = starts_in(events.start_ns[mine], union(events.start_ns[own], events.end_ns[own]))
        anomaly += int((events.exactly(*_LOOKS)[before] & within).sum())
    return SCALER if 2 * scaler > len(rows) else ANOMALY if 2 * anomaly > len(rows) else None


_STEPS = """
    step   [1                            ]  [2                            ]
    cpu    [F ][{0} ][I     ]    [B      ]  [F ][{0} ][I     ]    [B      ]
    gpu 7   [K         ]          [K     ]   [K         ]          [K     ]
    gpu 7               [C]                              [C]
    """


def _example(name: str, drawn: str, before: Ev, fixes: tuple[str, ...]) -> Example:
    forward, back = Ev("aten::linear"), Ev("aten::linear")
    made = draw(drawn.format("P"), us=1000, F=forward, P=before, I=ITEM, B=back, K=GEMM, C=D2H_PAGEABLE)
    return Example(name, made, saves_us=(0, 12_000), fixes=fixes)


READ_BY_TORCH = [
    _example(
        "GradScaler reads whether gradients are finite: a fused optimizer takes the flag on the device",
        _STEPS,
        Ev(f"aten::{_CHECK}", launches=""),
        ("fused=True",),
    ),
    _example(
        "the same read after another op: it is the script's",
        _STEPS,
        Ev("aten::mean", launches=""),
        ("loss.detach()",),
    ),
]

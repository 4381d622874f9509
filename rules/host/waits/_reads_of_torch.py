"""Values that PyTorch reads itself: whether a gradient is finite, and how many steps an optimizer has made."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    AUTOGRAD_NODE,
    D2H_PAGEABLE,
    GEMM,
    ITEM,
    Category,
    Drawing,
    Ev,
    Example,
    Fix,
    Ints,
    OptimizerWork,
    Price,
    SyncSite,
    draw,
    lookup,
    starts_in,
)

from ...shared._torch_optimizers import has_fused
from ._waits import READS

_CHECK = "_amp_foreach_non_finite_check_and_unscale_"
# Optimizers of torch that read how many steps they have made; what others read in their update, nobody knows.
_COUNTING = tuple(f"Optimizer.step#{name}" for name in ("Adam", "NAdam", "RAdam"))
# L-BFGS reads its loss and whether it has converged (torch/optim/lbfgs.py); nothing switches that off.
_READING = "Optimizer.step#LBFGS"
_LOOKS = ("aten::any", "aten::_is_any_true")

# With `fused=True` GradScaler hands the flag over on the device and reads nothing: torch/amp/grad_scaler.py, step, for
# optimizers with `_step_supports_amp_scaling`, which torch.optim's four set where they are fused.
SCALER = Fix(
    "Set `fused=True` in the optimizer, to which GradScaler hands its flag on the device",
    "numerics",
    "optimizer = torch.optim.AdamW(model.parameters())\nscaler.step(optimizer)",
    "optimizer = torch.optim.AdamW(model.parameters(), fused=True)\nscaler.step(optimizer)  # reads nothing",
)
# No row names the optimizer: it may be one of others.
_PERHAPS = replace(SCALER, title=f"{SCALER.title} (Adam, AdamW, SGD and Adagrad of torch.optim)")
# Scaling keeps small gradients from becoming 0 in fp16; bf16 has the range of fp32 (PyTorch's documentation of
# torch.amp, Gradient Scaling).
UNSCALED = Fix(
    "Use autocast in bf16, which needs no GradScaler: only fused optimizers of torch.optim take its flag on the device",
    "numerics",
    'with torch.autocast("cuda", dtype=torch.float16):\n    loss = compute(model, batch)\n'
    "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
    'with torch.autocast("cuda", dtype=torch.bfloat16):\n    loss = compute(model, batch)\n'
    "loss.backward()\noptimizer.step()",
)
ANOMALY = Fix(
    "Turn off anomaly detection, or the hook that reads whether each gradient is finite",
    "exact",
    "torch.autograd.set_detect_anomaly(True)",
    "torch.autograd.set_detect_anomaly(False)  # on again to look for an invalid gradient",
)

# Adam and its kin count steps in a tensor of each parameter, on the host unless `fused` or `capturable` is set, and
# read them all (torch/optim/optimizer.py, _get_value). `load_state_dict` leaves them where the checkpoint was loaded to
# (_process_value_according_to_param_policy).
COUNTERS = Fix(
    "Keep the optimizer's step counters on the host: load its checkpoint to the CPU",
    "exact",
    'state = torch.load(path, map_location="cuda")\noptimizer.load_state_dict(state["optimizer"])',
    'state = torch.load(path, map_location="cpu")\n'
    'optimizer.load_state_dict(state["optimizer"])  # moves all but the counters to the parameters\' device',
)


def to_be_left(site: SyncSite, price: Price, work: OptimizerWork | None) -> bool:
    """Whether most of the reads are those of L-BFGS, or of the loss that it asks for, or such of GradScaler that
    nothing spares: of an optimizer without `fused`, on a device whose matrix units have no bf16.
    """
    if site.op not in READS:
        return False
    if _most_within(np.array(site.rows, int), price, _READING):
        return True
    return _by_op_before(site, price) is SCALER and _scaler(price, work) is None


def _scaler(price: Price, work: OptimizerWork | None) -> Fix | None:
    """The change for what GradScaler reads; None where there is none."""
    if price.ops.events.named("aten::_fused_adam", "aten::_fused_sgd", "aten::_fused_adagrad").any():
        return None  # fused already: whoever reads, reads for itself
    if work is None:
        return _PERHAPS
    if has_fused(price, work):
        return replace(SCALER, title=SCALER.title.replace("the optimizer", f"`{work.name}`"))
    hardware = lookup(price.ops.device.name, price.ops.device.capability)
    return UNSCALED if hardware is not None and hardware.bf16 else None


def _most_within(rows: Ints, price: Price, *names: str) -> bool:
    events = price.ops.events
    updates = events.of(Category.ANNOTATION, Category.CPU_OP) & events.named(*names)
    return 2 * int((price.ops.nesting.ancestor_of(rows, updates) >= 0).sum()) > len(rows)


def read_by_torch(site: SyncSite, price: Price, work: OptimizerWork | None) -> Fix | None:
    """The change for values that PyTorch reads; None for those of a script."""
    found = _by_op_before(site, price)
    return _scaler(price, work) if found is SCALER else found


def _by_op_before(site: SyncSite, price: Price) -> Fix | None:
    """What reads most of them, by the op before, as the change for it."""
    if site.op not in READS:
        return None
    events = price.ops.events
    rows, nodes = np.array(site.rows, int), np.flatnonzero(events.named(AUTOGRAD_NODE))
    if _most_within(rows, price, *_COUNTING):
        return COUNTERS
    ops = np.flatnonzero(events.of(Category.CPU_OP) & ~events.named(AUTOGRAD_NODE))
    scaler = anomaly = 0
    for thread in np.unique(events.thread[rows]).tolist():
        mine, before = rows[events.thread[rows] == thread], ops[events.thread[ops] == thread]
        before = before[np.argsort(events.end_ns[before], kind="stable")]
        at = np.searchsorted(events.end_ns[before], events.start_ns[mine], side="right") - 1
        mine, before = mine[at >= 0], before[at[at >= 0]]
        scaler += int(events.named(_CHECK)[before].sum())
        own = nodes[events.thread[nodes] == thread]
        within = starts_in(events.start_ns[mine], events.covered(own))
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
    made = draw(drawn.format("P"), us=1000, F=forward, P=before, I=ITEM, B=back, C=D2H_PAGEABLE)
    return Example(name, made, saves_us=(0, 12_000), fixes=fixes)


_UPDATES = """
    step   [1                            ]  [2                            ]
    cpu    [B ][O                       ]   [B ][O                       ]
    cpu        [I       ]    [A  ]              [I       ]    [A  ]
    gpu 7   [K       ]        [L      ]      [K       ]        [L      ]
    gpu 7             [C]                              [C]
    """


def _updated(optimizer: str) -> Drawing:
    return draw(
        _UPDATES,
        us=1000,
        B=Ev("aten::linear"),
        O=Ev(f"Optimizer.step#{optimizer}.step", "user_annotation", launches=""),
        I=ITEM,
        A=Ev("aten::_foreach_add_"),
        L=GEMM,
        C=D2H_PAGEABLE,
    )


# Layers and GradScaler's check (F, P), what it reads (I), the update (O, A).
_SCALED = """
    step   [1                              ]  [2                              ]
    cpu    [F ][P ][I     ]    [O      ]      [F ][P ][I     ]    [O      ]
    cpu                        [A      ]                          [A      ]
    gpu 7   [K         ]        [L     ]       [K         ]        [L     ]
    gpu 7               [C]                                [C]
    """


def _scaled(optimizer: str, device: str, fixes: tuple[str, ...]) -> Example:
    drawn = draw(
        _SCALED,
        us=1000,
        device=device,
        F=Ev("aten::linear"),
        P=Ev(f"aten::{_CHECK}", launches=""),
        I=ITEM,
        O=Ev(f"Optimizer.step#{optimizer}.step", "user_annotation", launches=""),
        A=Ev("aten::add_", times=10),
        L=replace(GEMM, times=10),
        C=D2H_PAGEABLE,
    )
    name = f"GradScaler reads for {optimizer} on a device {'with' if device == 'A100' else 'without'} units for bf16"
    return Example(name, drawn, saves_us=(0, 12_000) if fixes else None, fixes=fixes, near_miss=not fixes)


READ_BY_TORCH = [
    Example(
        "Adam reads a step counter that lies on the device",
        _updated("AdamW"),
        saves_us=(0, 12_000),
        fixes=("Keep the optimizer's step counters on the host",),
    ),
    Example("L-BFGS reads whether it has converged", _updated("LBFGS"), near_miss=True),
    Example(
        "an optimizer that reads something else in its update, such as a norm",
        _updated("LARS"),
        saves_us=(0, 12_000),
        fixes=("loss.detach()",),
    ),
    _scaled("AdamW", "A100", ("Set `fused=True` in `AdamW`",)),
    _scaled("Lion", "A100", ("Use autocast in bf16, which needs no GradScaler",)),
    _scaled("Lion", "V100", ()),
    _example(
        "GradScaler reads whether gradients are finite: a fused optimizer takes the flag on the device",
        _STEPS,
        Ev(f"aten::{_CHECK}", launches=""),
        ("fused=True",),
    ),
    _example(
        "the same read after another op: it is the script's", _STEPS, Ev("aten::mean", launches=""), ("loss.detach()",)
    ),
]

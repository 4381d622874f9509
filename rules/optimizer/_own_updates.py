"""What an optimizer that updates tensors one by one can be told: PyTorch's own has an argument, another has not."""

from __future__ import annotations

import numpy as np

from advisor.api import Fix, Optimizer, OptimizerWork, Price, Treatment

# Classes of torch.optim with the argument `fused`, and those that have only `foreach`.
FUSED_CLASSES = ("Adagrad", "Adam", "AdamW", "SGD")
FOREACH_CLASSES = ("ASGD", "Adadelta", "Adafactor", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")
# No update of the fused classes compares, sums or multiplies matrices; optimizers of others do (C-AdamW, Lion, Muon,
# LAMB) and may keep the name of the class that they extend.
_OTHERS_OPS = (
    *("gt", "lt", "ge", "le", "sum", "mean", "norm", "linalg_vector_norm", "sign", "sign_", "where"),
    *("mm", "bmm", "matmul", "addmm", "addmm_"),
)
LISTS = Fix(
    "Update all parameters at once: with `torch._foreach_*` ops, or in a compiled function",
    "numerics",
    "optimizer.step()",
    "@torch.compile(fullgraph=False)\ndef update():\n    optimizer.step()\n\nupdate()",
)


def own_update(price: Price, work: OptimizerWork) -> bool:
    """Whether the loop is not that of a class of torch.optim: by its name, or by what it does to most tensors."""
    if not work.name:
        return False
    if work.name not in (*FUSED_CLASSES, *FOREACH_CLASSES):
        return True
    if work.name not in FUSED_CLASSES or not work.tensors:
        return False
    others = price.ops.events.exactly(*(f"aten::{name}" for name in _OTHERS_OPS))[np.array(work.rows, int)]
    return bool(2 * others.sum() > work.tensors * work.calls * price.ops.steps.count)


def fused_fix(name: str, known: Optimizer | None, on_device: bool) -> Fix:
    """The argument for a class of torch.optim."""
    call = f"torch.optim.{name or 'AdamW'}(model.parameters(), ...)"
    if name in FOREACH_CLASSES:
        return Fix("Set `foreach=True`", "numerics", call, call.replace("...", "..., foreach=True"))
    before = call.replace("...", "..., foreach=False") if known and known.foreach is False else call
    # An older one raises at the optimizer's first line or at its first step.
    title = "Set `fused=True`" + ("" if on_device else " (on a CPU: PyTorch 2.4 or later)")
    if known and known.foreach is False:
        title += " instead of `foreach=False`: it needs no extra memory"
    after = call.replace("...", "..., fused=True")
    return Fix(title, "numerics", before, after, Treatment("optimizer", {"fused": True}))

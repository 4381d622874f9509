"""Which optimizers are those of torch.optim, whose constructors have `fused` or `foreach`.

Where each line is documented: torch/optim, the signatures of the classes; torch/optim/_adafactor.py,
_single_tensor_adafactor, which updates its state by `lerp_`, as Transformers' class of that name never does.
"""

from __future__ import annotations

import numpy as np

from advisor.api import OptimizerWork, Price

# Classes of torch.optim with the argument `fused`, and those that have only `foreach`.
FUSED_CLASSES = ("Adagrad", "Adam", "AdamW", "SGD")
FOREACH_CLASSES = ("ASGD", "Adadelta", "Adafactor", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")
# No update of the fused classes compares, sums or multiplies matrices; optimizers of others do (C-AdamW, Lion, Muon,
# LAMB) and may keep the name of the class that they extend.
_OTHERS_OPS = (
    *("gt", "lt", "ge", "le", "sum", "mean", "norm", "linalg_vector_norm", "sign", "sign_", "where"),
    *("mm", "bmm", "matmul", "addmm", "addmm_"),
)


def own_update(price: Price, work: OptimizerWork) -> bool:
    """Whether the loop is not that of a class of torch.optim: by its name, or by what it does to most tensors."""
    if not work.name:
        return False
    events, rows = price.ops.events, np.array(work.rows, int)
    if work.name == "Adafactor":
        return not events.exactly("aten::lerp_", "aten::_foreach_lerp_")[rows].any()
    if work.name not in (*FUSED_CLASSES, *FOREACH_CLASSES):
        return True
    if work.name not in FUSED_CLASSES or not work.tensors:
        return False
    others = events.exactly(*(f"aten::{name}" for name in _OTHERS_OPS))[rows]
    return bool(2 * others.sum() > work.tensors * work.calls * price.ops.steps.count)


def has_fused(price: Price, work: OptimizerWork) -> bool:
    """Whether the optimizer that takes most time has the argument `fused`."""
    return work.name in FUSED_CLASSES and not own_update(price, work)

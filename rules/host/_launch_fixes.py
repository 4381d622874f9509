"""What to change where a device waits for launches: the loop, the op, or how the step is launched."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from advisor.api import Category, Fix, OpLoop, Price, Treatment

from ..shared._compiled_regions import differentiated_again
from ..shared._words import count
from ._launches_in_ops import ManyLaunches

# From this share on it is the backward pass alone that is slow to launch: it has two thirds of the kernels elsewhere.
MOSTLY = 0.8


def no_loop(loop: OpLoop) -> Fix:
    """Instead of the loop that waits lie in."""
    # torch.nn.functional.grouped_mm; `experts_implementation` is an argument of Transformers' models since version 5.
    if loop.routed:
        return Fix(
            f"Compute the {count(loop.iterations)} experts by one grouped product of sorted tokens",
            "numerics",
            "for expert in range(experts):\n    rows = torch.where(chosen == expert)\n    ...",
            'model.set_experts_implementation("grouped_mm")  # Transformers\n'
            "# or, by hand: sort the tokens by expert, then\n"
            "y = torch.nn.functional.grouped_mm(x_sorted, weights, offs=ends_of_experts)",
        )
    return Fix(
        f"Compute the {count(loop.iterations)} iterations by ops on whole tensors, or by one kernel",
        "numerics",
        "for i in range(len(points)):\n    norm = (points - points[i]).norm(dim=1)\n    far[i] = norm.max()",
        "far = torch.cdist(points, points).amax(dim=1)",
    )


def other_op(many: ManyLaunches) -> Fix:
    """Instead of an op that launches many kernels."""
    return Fix(f"Replace `{many.op}`, or choose arguments for which one kernel computes the whole batch", "numerics")


def of_step(price: Price, compiled: bool | None, graphs: bool, backward: float | None) -> Fix:
    """For all launches of a step."""
    if _in_optimizer(price) >= MOSTLY:
        return _OF_OPTIMIZER
    if compiled or graphs:
        return _fix(compiled, graphs, backward)
    if differentiated_again(price.ops):
        return _CAPTURE
    return _CAPTURE_COMPLEX if _complex_share(price) > _COMPLEX else _fix(compiled, graphs, backward)


def _in_optimizer(price: Price) -> float:
    """Share of a step's launches that lie in steps of an optimizer."""
    ops, events = price.ops, price.ops.events
    rows = np.flatnonzero(events.named("Optimizer.step#") & events.of(Category.ANNOTATION))
    return len(ops.launched(rows)) / max(len(ops.links.works), 1)


def _complex_share(price: Price) -> float:
    """Share of a step's launches by ops on complex numbers, as far as formats are recorded."""
    events, work = price.ops.events, np.flatnonzero(price.ops.trace.device_work & price.ops.links.inside)
    launch = price.ops.links.launch[work]
    ops = price.ops.nesting.outer_op[launch[launch >= 0]]
    ops = ops[(ops >= 0) & (events.dtypes[ops] >= 0)]
    of_complex = np.array(["complex" in dtypes for dtypes in events.dtypes_table], bool)
    return float(of_complex[events.dtypes[ops]].mean()) if len(ops) else 0.0


# docs.pytorch.org/tutorials/recipes/compiling_optimizer.html
_OF_OPTIMIZER = Fix(
    "Update parameters of the same shape together in the optimizer, or compile its step",
    "numerics",
    "for p in matrices:\n    update = newton_schulz(p.grad)  # dozens of small products for each",
    "stacked = torch.stack([p.grad for p in matrices])  # of one shape\n"
    "for p, update in zip(matrices, newton_schulz(stacked)):  # batched products\n    ...\n"
    "# or\noptimizer.step = torch.compile(optimizer.step, fullgraph=False)",
)
# docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture
_CAPTURE = Fix(
    "Capture the whole step as a CUDA graph: compiled code cannot be differentiated twice",
    "numerics",
    "train_step(batch)",
    "graph = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(graph):  # after some steps on another stream\n"
    "    train_step(static_batch)  # static shapes, no reads; the optimizer with capturable=True\n\n"
    "static_batch.copy_(batch)\ngraph.replay()",
)
# torch/_inductor/lowering.py: "Torchinductor does not support code generation for complex operators. Performance may be
# worse than eager."
_COMPLEX = 0.2
_CAPTURE_COMPLEX = replace(
    _CAPTURE, title="Capture the step as a CUDA graph: the compiler leaves ops on complex numbers as they are"
)


def _fix(compiled: bool | None, graphs: bool, backward: float | None = None) -> Fix:
    if compiled and not graphs and backward is not None and backward >= MOSTLY:
        return Fix(
            "Enable compiled autograd to compile the backward pass as a whole",
            "numerics",
            "model = torch.compile(model)",
            "torch._dynamo.config.compiled_autograd = True\nmodel = torch.compile(model)",
        )
    if graphs:
        return Fix(
            "Launch less outside the CUDA graphs: fewer small ops, and the optimizer's `fused=True` where it has that",
            "numerics",
        )
    if compiled:
        return Fix(
            'Set `mode="reduce-overhead"` to replay the compiled regions as CUDA graphs',
            "numerics",
            "model = torch.compile(model)",
            # `cudagraph_or_error` in torch/_inductor/config.py; without it a warning is all that is said.
            'model = torch.compile(model, mode="reduce-overhead")\n'
            "# Set already? This raises where a graph is skipped:\n"
            "torch._inductor.config.triton.cudagraph_or_error = True",
        )
    return Fix(
        "Compile the model to fuse small kernels and launch them together",
        "numerics",
        "model = Net().to(device)",
        'model = torch.compile(Net().to(device), mode="reduce-overhead")',
        Treatment("compile", {"mode": "reduce-overhead"}),
    )

"""What an optimizer that updates tensors one by one can be told: PyTorch's own has an argument, another has not."""

from __future__ import annotations

from advisor.api import Fix, Optimizer, Treatment

from ..shared._torch_optimizers import FOREACH_CLASSES

LISTS = Fix(
    "Update all parameters at once: with `torch._foreach_*` ops, or in a compiled function",
    "numerics",
    "optimizer.step()",
    "@torch.compile(fullgraph=False)\ndef update():\n    optimizer.step()\n\nupdate()",
)


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

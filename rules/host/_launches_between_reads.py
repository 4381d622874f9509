"""Launches between reads of the device: no graph goes across a read, so that these are to go first."""

from __future__ import annotations

from typing import Any

from advisor.api import D2H_PAGEABLE, ELEMENTWISE, Drawing, Ev, Example, Fix, draw

from ..shared._words import count
from ._launch_waits import LaunchWaits


def between(waits: LaunchWaits) -> str:
    """What is said of them."""
    if not waits.reads:
        return ""
    by = " and ".join(f"`{op.removeprefix('aten::')}`" for op in waits.read_by[:2])
    return f"; between them the host reads from the GPU {count(waits.reads)} times ({by})"


def without_reads(waits: LaunchWaits) -> Fix:
    """What to do first."""
    # docs.pytorch.org/docs/stable/notes/cuda.html#constraints: a capture prohibits what synchronizes with the CPU.
    read = " and ".join(f"`{op.removeprefix('aten::')}`" for op in waits.read_by[:2])
    return Fix(
        f"Remove {read} between the layers, or read once a step; then compile, as no graph goes across a read",
        "numerics",
        "for layer in layers:\n    rows = mask.nonzero()\n    x = layer(x[rows])",
        "rows = mask.nonzero()  # once, before the layers\nfor layer in layers:\n    x = layer(x[rows])\n\n"
        "# Transformers: DataCollatorWithFlattening(return_flash_attn_kwargs=True) gives lengths from the host",
    )


def _reading(op: str, *, reads: bool) -> Drawing:
    """A step of eight layers, each of which launches ten short kernels and calls this op."""
    layers = 2 * 8
    step = f"{'':{4 * layers - 3}}"
    copies: dict[str, Any] = {"C": D2H_PAGEABLE} if reads else {}
    return draw(
        f"""
        step   [1{step}][2{step}]
        cpu    {"[F  ][R]" * layers}
        gpu 7  {(" [K ][C]" if reads else " [K ]   ") * layers}
        """,
        us=25,
        F=Ev("aten::add", times=10),
        K=Ev(ELEMENTWISE.name, "kernel", times=10, fill=0.2),
        R=Ev(op, launches="memcpy" if reads else "", blocks=reads),
        **copies,
    )


BETWEEN_READS = [
    Example(
        "each layer asks which tokens are none of padding, and waits for their number",
        _reading("aten::nonzero", reads=True),
        saves_us=(0, 1600),
        says=("the host reads from the GPU 8 times (`nonzero`)",),
        fixes=("Remove `nonzero` between the layers",),
    ),
    Example(
        "the same layers without it",
        _reading("aten::view", reads=False),
        saves_us=(0, 1600),
        fixes=("Compile the model",),
        near_miss=True,
    ),
]

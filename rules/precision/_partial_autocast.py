"""Autocast around a part of the step alone, such as its loss, while the model's own products run in fp32.

torch.amp ("Automatic Mixed Precision package - torch.amp", torch.autocast): "autocast should wrap only the forward
pass(es) of your network, including the loss computation(s)".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    ELEMENTWISE,
    SYNC,
    Category,
    Drawing,
    Ev,
    Example,
    Fix,
    Matmuls,
    Price,
    RowMask,
    dims_of,
    draw,
    dtypes_of,
    sizes,
)

from ._formats import Way, half_way, is_mixed

Shape = tuple[int, ...]
# Layers whose second input is their weight, and products in which it is the last one, as it is or transposed.
_LAYERS = ("aten::linear", *(f"aten::conv{of}{n}d" for of in ("", "_transpose") for n in (1, 2, 3)))
_PRODUCTS = ("aten::mm", "aten::addmm")
_HALF = {"c10::BFloat16": "bf16", "c10::Half": "fp16"}


def partial_autocast(price: Price, matmuls: Matmuls) -> tuple[float, Way] | None:
    """Weights that autocast converts per step, and the way to have all of the model's; None where it converts none.

    Seen where shapes are recorded: a weight in fp32 is converted in the forward pass, and a layer multiplies by a
    weight of that shape in 16 bits. A part that is in 16 bits by itself, as a frozen encoder, has none to convert.
    """
    if not matmuls.on_device or is_mixed(matmuls):
        return None
    forward = price.ops.nesting.ancestor_of(np.arange(len(price.ops.events)), _elsewhere(price)) < 0
    used = dict(_in_16_bits(price, forward))
    converted = [used[shape] for shape in _converted(price, forward) if shape in used]
    if not converted:
        return None
    way = half_way(price.ops.device, converted[0], _whole(converted[0]))
    return None if way is None else (len(converted) / price.ops.steps.count, way)


def _elsewhere(price: Price) -> RowMask:
    """Rows that are no forward pass: nodes of the backward pass, and the optimizer, which may keep weights in fp32."""
    return price.ops.events.named("autograd::engine", "Optimizer.step#")


def _in_16_bits(price: Price, forward: RowMask) -> Iterator[tuple[Shape, str]]:
    """Shapes of weights by which a layer multiplies in 16 bits, and the format."""
    events, inside = price.ops.events, price.ops.links.inside
    layers = events.exactly(*_LAYERS, *_PRODUCTS) & events.of(Category.CPU_OP) & forward & inside & (events.dims >= 0)
    # Nearly all are alike: each kind is looked at once.
    kinds = np.stack((events.name, events.dims, events.dtypes))[:, layers]
    for row in np.flatnonzero(layers)[np.unique(kinds, axis=1, return_index=True)[1]].tolist():
        name, dtypes = events.text(row), dtypes_of(events, row)
        at = 2 if name == "aten::addmm" else 1
        if at < len(dtypes) and dtypes[at] in _HALF:
            shape = sizes(dims_of(events, row), at)
            yield (shape[::-1] if name in _PRODUCTS else shape), _HALF[dtypes[at]]


def _converted(price: Price, forward: RowMask) -> Iterator[Shape]:
    """Shapes of tensors in fp32 that a kernel copies to another format."""
    events, nesting, links = price.ops.events, price.ops.nesting, price.ops.links
    kernels = np.flatnonzero(events.of(Category.KERNEL) & links.inside & (links.launch >= 0))
    copies = nesting.ancestor_of(links.launch[kernels], events.exactly("aten::_to_copy") & forward)
    copies = np.unique(copies[copies >= 0])
    asked = nesting.ancestor_of(copies, events.exactly("aten::to"))
    for row in np.where((events.dims[copies] < 0) & (asked >= 0), asked, copies).tolist():
        shape = sizes(dims_of(events, row), 0)
        if len(shape) > 1 and dtypes_of(events, row)[:1] == ["float"]:
            yield shape


def _whole(short: str) -> Fix:
    dtype = "torch.bfloat16" if short == "bf16" else "torch.float16"
    return Fix(
        "Call the whole model under autocast, not a part of the step alone",
        "numerics",
        f'out = model(x)\nwith torch.autocast("cuda", dtype={dtype}):\n    loss = criterion(out, y)',
        f'with torch.autocast("cuda", dtype={dtype}):\n    out = model(x)\n    loss = criterion(out, y)\n'
        "# If the model has to stay in fp32, let its products run in TF32, where the device has it:\n"
        '# torch.set_float32_matmul_precision("high")',
    )


_WEIGHT, _HEAD = [1024, 1024], [64, 1024]
# A layer in fp32 (F, B), the conversion of the weight of a second one (T, C, E), and that one (H, L).
_STEPS = """
    step   [1                                               ][2                                               ]
    cpu    [F ][B ][T   ][H ][S                             ][F ][B ][T   ][H ][S                             ]
    cpu             [C ]                                              [C ]
    gpu 7     [K                 ][K                 ][E][L]    [K                 ][K                 ][E][L]
    """


def _drawn(device: str = "A100", weight: str = "float", head: str = "c10::BFloat16") -> Drawing:
    layer = Ev("aten::mm", dims=[[8192, 1024], _WEIGHT], dtypes=["float"] * 2)
    return draw(
        _STEPS,
        us=1000,
        device=device,
        F=layer,
        B=layer,
        T=Ev("aten::to", dims=[_HEAD], dtypes=[weight], launches=""),
        C=Ev("aten::_to_copy", dims=[_HEAD], dtypes=[weight], launches="kernel"),
        H=Ev("aten::linear", dims=[[8192, 1024], _HEAD], dtypes=[head] * 2, launches="kernel"),
        S=SYNC,
        E=Ev(ELEMENTWISE.name, "kernel"),
        L=Ev("ampere_bf16_s16816gemm_bf16_128x64_tn", "kernel"),
    )


IN_PART = [
    Example(
        # Of 40 ms in fp32 bf16 saves 9.2 at 1.3 times as fast, 32 at five times; TF32 (below) 6.7 and 34.3.
        "autocast is around the last layer alone",
        _drawn(),
        saves_us=(9_000, 32_500),
        says=("bf16", "autocast converts the weights of 1 layer a step alone"),
        fixes=("Call the whole model under autocast", "set_float32_matmul_precision"),
    ),
    Example(
        "a part that is in bf16 by itself: nothing is converted for it",
        _drawn(weight="c10::BFloat16"),
        saves_us=(6_500, 34_500),
        fixes=('Set `torch.set_float32_matmul_precision("high")`',),
    ),
    Example(
        "tensors that are converted for something else than a layer",
        _drawn(head="float"),
        saves_us=(6_500, 34_500),
        fixes=('Set `torch.set_float32_matmul_precision("high")`',),
    ),
]

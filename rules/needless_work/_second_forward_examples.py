"""Examples of forward passes without gradients beside the trained one, and the ops that second-forward draws."""

from __future__ import annotations

from typing import Any

from advisor.api import Ev, Example, draw

from ..shared._examples import node, op

LAYER = [[64, 256], [1024, 256], [1024]]
_FREE = Ev("aten::linear", dims=LAYER)


def linear(number: int, dims: list[list[int]] | None = None) -> Ev:
    """A layer whose autograd node has this number."""
    return op("linear", *(dims or LAYER), number=number)


_TRAINED: dict[str, Any] = {
    **{name: linear(number) for name, number in zip("ABEF", (1, 2, 3, 4), strict=True)},
    **{name: node(number) for name, number in zip("ZYXW", (2, 1, 4, 3), strict=True)},
    **dict.fromkeys("CDGH", _FREE),
}
_FIGURES: dict[str, Any] = {
    key: Ev("aten::softmax", dims=one.dims, args=one.args) if "linear" in one.name else one
    for key, one in _TRAINED.items()
}
_AFTER = """
    step   [1                             ][2                             ]
    cpu    [A ][B ][Z   ][Y   ][C ][D ]     [E ][F ][X   ][W   ][G ][H ]
    """
_BEFORE = """
    step   [1                             ][2                             ]
    cpu    [C ][D ][A ][B ][Z   ][Y   ]     [G ][H ][E ][F ][X   ][W   ]
    """


def _seen(name: str = "aten::linear") -> dict[str, Any]:
    """What was observed of a step: its third and fourth op read what its first and second had read."""
    return {"reused": {"names": [name], "ops": [0, 0, 0, 0], "again": [(2, 0), (3, 1)], "constant": []}}


WITHOUT_GRADIENTS = [
    Example(
        "a metric asks the trained network again on the same batch, under no_grad",
        draw(_AFTER, us=100, **_TRAINED),
        facts=_seen(),
        saves_us=(800, 1350),
        says=("repeated without gradients once a step",),
    ),
    Example(
        "a pass under no_grad has other weights or another batch: its ops read other tensors",
        draw(_AFTER, us=100, **_TRAINED),
        facts={"reused": {"names": ["aten::linear"], "ops": [0, 0, 0, 0], "again": [], "constant": []}},
        near_miss=True,
    ),
    Example(
        "the pass without gradients comes first, and decides what is trained",
        draw(_BEFORE, us=100, **_TRAINED),
        facts=_seen(),
        near_miss=True,
    ),
    Example(
        "a figure of the loss is computed again for a log, and no network",
        draw(_AFTER, us=100, **_FIGURES),
        facts=_seen("aten::softmax"),
        near_miss=True,
    ),
]

"""Examples of recurrent layers that are called for one position after the other beside a device."""

from __future__ import annotations

from typing import Any

from advisor.api import ELEMENTWISE, GEMM, Drawing, Ev, Example

from ..shared._examples import node, op, two_steps

_CALLS = 16
_SEQUENCE, _INPUT, _STATE, _LABELS = [_CALLS, 8, 24], [1, 8, 24], [1, 8, 32], [_CALLS, 8]


def _drawn(turn: str = "[S][R][H]", **ops: Any) -> Drawing:
    """A loop over positions and its backward pass (Y). Of a turn, the recurrent layer (R) and its head (H) launch.

    S: takes a part of the sequence;  E: looks one up;  C: joins two;  M: works on the state;  T: takes a label
    """
    known: dict[str, Any] = {
        "S": op("select", _SEQUENCE, launches=""),
        "T": op("select", _LABELS, launches=""),
        "E": op("embedding", [50, 24], [1, 8], launches=""),
        "C": op("cat", [_INPUT, [1, 8, 4]], launches=""),
        "M": op("mul", _STATE, _STATE, launches=""),
        "G": op("argmax", [8, 24], launches=""),
        "W": op("copy_", [8, 24], [8, 24], launches=""),
        "R": op("lstm", _INPUT, [_STATE, _STATE], number=1, launches="kernel"),
        "H": op("linear", _STATE, [24, 32], launches="kernel"),
        "Y": node(1, "CudnnRnnBackward0", launches="kernel"),
        "Q": Ev(ELEMENTWISE.name, "kernel", fill=0.05),
        "X": GEMM,
    }
    cpu = turn * _CALLS
    lane = list(" " * (len(cpu) + 1))
    for at, letter in enumerate(cpu):
        if letter in "RH" and cpu[at - 1] == "[":
            lane[at : at + 3] = "[Q]"
    used = {letter: one for letter, one in (known | ops).items() if letter in f"{cpu}YQX"}
    return two_steps(f"{cpu}[Y      ][O]", gpu="".join(lane) + "[X    ]", **used)


def _busy() -> Drawing:
    """The same beside one kernel that lasts as long as the loop."""
    cpu = "[F]" + "[S][R][H]" * _CALLS + "[Y      ][O]"
    return two_steps(
        cpu,
        gpu=f" [X{' ' * len(cpu)}]",
        F=op("linear", _STATE, [24, 32], launches="kernel"),
        S=op("select", _SEQUENCE, launches=""),
        R=op("lstm", _INPUT, [_STATE, _STATE], number=1, launches=""),
        H=op("linear", _STATE, [24, 32], launches=""),
        Y=node(1, "CudnnRnnBackward0"),
        X=GEMM,
    )


ONE_BY_ONE = _drawn()
EXAMPLES = [
    Example(
        "beside a device that waits for the launches of each position",
        ONE_BY_ONE,
        saves_us=(0, 14_000),
        says=("`lstm` is called 16 times a step, for 16 positions one after the other", "and waits"),
        fixes=("Call the recurrent layer once for all time steps",),
    ),
    Example(
        "what is looked up by a part is joined with another one, and a label is taken for the loss",
        _drawn("[S][S][E][C][R][H][T]"),
        saves_us=(0, 34_000),
    ),
    Example(
        "outputs are stored in a tensor of their own",
        _drawn("[S][R][H][T][W]"),
        saves_us=(0, 24_000),
    ),
    Example(
        "cells, each with a head behind it",
        _drawn(R=op("gru_cell", [8, 24], [8, 32], [96, 24], number=1, launches="kernel")),
        saves_us=(0, 14_000),
        says=("`gru_cell` is called 16 times a step",),
    ),
    Example(
        "cells alone, which `tensor-loop` tells",
        _drawn("[S][R]", R=op("gru_cell", [8, 24], [8, 32], [96, 24], number=1, launches="kernel")),
        near_miss=True,
    ),
    Example(
        "what a decoder chooses of its outputs may be its next input",
        _drawn("[S][E][R][H][G]"),
        near_miss=True,
    ),
    Example(
        "a decoder's input is its output: labels alone are parts of a tensor, which it takes behind each call",
        _drawn("[R][H][T]"),
        near_miss=True,
    ),
    Example(
        "covariates of each position are joined with the output before",
        _drawn("[S][C][R][H]"),
        near_miss=True,
    ),
    Example(
        "the input is computed from the state, as attention does",
        _drawn("[S][B][R][H]", B=op("bmm", [8, 1, 32], [8, 32, 10], launches="")),
        near_miss=True,
    ),
    Example("the state is masked between two positions, on a device", _drawn("[S][R][H][M]"), near_miss=True),
    Example(
        "the state goes through a layer of its own between two positions",
        _drawn(H=op("linear", _STATE, [32, 32], launches="kernel")),
        near_miss=True,
    ),
    Example(
        "outputs are written into the sequence of inputs",
        _drawn("[S][R][H][S][W]"),
        near_miss=True,
    ),
    Example("of whose tensors the shapes are not known", _drawn(S=op("select", launches="")), near_miss=True),
    Example("beside a device that has enough to do, position by position", _busy(), near_miss=True),
]

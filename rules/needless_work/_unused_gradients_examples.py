"""Examples of gradients that no optimizer applies, and what they are drawn with."""

from __future__ import annotations

from typing import Any

from advisor.api import GRADIENT_STORE, OPTIMIZER, Drawing, Ev, Example, draw

from ..shared._examples import node


def _linear(number: int, *weights: int) -> Ev:
    return Ev("aten::linear", dims=[[64, 512], list(weights)], args={"Sequence number": number, "Fwd thread id": 0})


def _stored(*shape: int, fill: float = 1.0) -> Ev:
    return Ev(GRADIENT_STORE, dims=[list(shape)], launches="", fill=fill)


_STEPS = """
    step   [1                                    ][2                                    ]
    cpu    [A  ][B  ][Y ][T ][Z       ][S ][O ]    [C  ][D  ][W ][U ][X       ][V ][P ]
    cpu                                    [M]                                    [Q]
    """
_UPDATE = Ev("aten::_fused_adamw_", dims=[[[3, 512]], [[3, 512]]])


def _frozen(number: int) -> dict[str, object]:
    return {"optimizers": [{"name": "AdamW", "tensors": number}]}


def _drawn(
    head: tuple[int, ...], backbone: tuple[int, ...], *, fill: float = 1.0, known: bool = True, read: bool = False
) -> Drawing:
    """A forward pass through a backbone (A) and a head (B), and its backward pass. read: what comes last is (R)."""
    more: dict[str, Any] = {"R": Ev("aten::abs", dims=[list(backbone)])} if read else {}
    return draw(
        _STEPS.replace("[O ]    ", "[O ][R] ") if read else _STEPS,
        us=100,
        A=_linear(1, *(backbone if known else head)),
        B=_linear(2, *head),
        Y=node(2, launches=None),
        T=_stored(*head, fill=fill),
        Z=node(1, launches=None),
        S=_stored(*backbone, fill=fill),
        C=_linear(3, *(backbone if known else head)),
        D=_linear(4, *head),
        W=node(4, launches=None),
        U=_stored(*head, fill=fill),
        X=node(3, launches=None),
        V=_stored(*backbone, fill=fill),
        P=OPTIMIZER,
        M=_UPDATE,
        Q=_UPDATE,
        **more,
    )


def _in_turns(*, added: bool) -> Drawing:
    """A discriminator's pass that runs on through the generator, then the generator's own; each has an optimizer."""
    kept = Ev("aten::add_" if added else "aten::detach", dims=[[512, 512]])
    rows: dict[str, Any] = {name: _linear(at, *shape) for name, at, shape in _TURNS}
    rows |= {name: node(at, launches=None) for name, at in zip("YZWXyzwx", (2, 1, 4, 3, 6, 5, 8, 7), strict=True)}
    rows |= dict.fromkeys("TUtu", _stored(3, 512)) | dict.fromkeys("SVsv", _stored(512, 512))
    rows |= dict.fromkeys("OPQR", OPTIMIZER)
    return draw(
        """
        step   [1                                                ][2                                                ]
        cpu    [A][B][Y][T][Z   ][S ][O ][C][D][W][U ][X][V ][P ] [E][F][y][t][z   ][s ][Q ][G][H][w][u ][x][v ][R ]
        cpu                      [K] [M]          [J]    [K] [N]                    [K] [M]          [J]    [K] [N]
        """,
        us=100,
        **rows,
        J=Ev("aten::add_", dims=[[3, 512]]),
        K=kept,
        M=_UPDATE,
        N=Ev("aten::_fused_sgd_", dims=[[[512, 512]], [[512, 512]]]),
    )


def _attack(*, added: bool = False, read: bool = False) -> Drawing:
    """A pass for the gradient of a batch (S) that stores a layer's beside it (T), then the loss's own pass (U).

    added: the layer's gradients add up until the optimizer applies them; read: something reads the layer's (R).
    """
    rows: dict[str, Any] = {name: _linear(at, 512, 512) for at, name in enumerate("ABCD", 1)}
    rows |= {name: node(at, launches=None) for at, name in enumerate("YZWX", 1)} | dict.fromkeys("OP", OPTIMIZER)
    rows |= dict.fromkeys("TU", _stored(512, 512))
    kept, fresh = Ev("aten::add_", dims=[[512, 512]]), Ev("aten::detach", dims=[[512, 512]])
    return draw(
        """
        step   [1                                              ][2                                              ]
        cpu    [A][Y        ][T ][S ][R][B][Z        ][U ][O  ] [C][W        ][T ][S ][R][D][X        ][U ][P  ]
        cpu       [G  ][H  ] [K] [J]       [G  ][H  ] [L] [M ]     [G  ][H  ] [K] [J]       [G  ][H  ] [L] [M ]
        """,
        us=100,
        **rows,
        S=_stored(64, 512),
        G=Ev("aten::mm", dims=[[64, 512], [512, 512]]),
        H=Ev("aten::mm", dims=[[512, 64], [64, 512]]),
        K=fresh if added else kept,
        L=kept if added else fresh,
        J=Ev("aten::detach", dims=[[64, 512]]),
        R=Ev("aten::sign", dims=[[512, 512] if read else [64, 512]]),
        M=Ev("aten::_fused_adamw_", dims=[[[512, 512]]]),
    )


# A judge's own pass (T) and its optimizer (O); then a maker's pass (S), which goes through the judge and adds to its
# gradient (U). H is the product that makes it.
_THROUGH = (
    "[A][Y   ][T ][O ][B][C][W        ][U ][Z ][S ][P ]     ",
    "              [M]       [G ][H ]  [K]         [N]     ",
)
_LATE = (
    "[A][Y   ][T ]    [B][C][W        ][U ][Z ][S ][P ][O ] ",
    "                        [G ][H ]  [K]         [N] [M] ",
)
_NEXT_STEP = str.maketrans("AYBCWZ", "DyEFwz")


def _through(ops: str, inside: str) -> Drawing:
    rows: dict[str, Any] = {name: _linear(at, 512, 512) for name, at in zip("ACDF", (1, 3, 4, 6), strict=True)}
    rows |= {"B": _linear(2, 3, 512), "E": _linear(5, 3, 512)} | dict.fromkeys("OP", OPTIMIZER)
    rows |= {name: node(at, launches=None) for name, at in zip("YWZywz", (1, 3, 2, 4, 6, 5), strict=True)}
    rows |= {"T": _stored(512, 512), "U": _stored(512, 512), "S": _stored(3, 512)}
    blank = " " * (len(ops) - 3)
    return draw(
        f"step   [1{blank}][2{blank}]\ncpu    {ops}{ops.translate(_NEXT_STEP)}\ncpu    {inside}{inside}\n",
        us=100,
        **rows,
        G=Ev("aten::mm", dims=[[64, 512], [512, 512]]),
        H=Ev("aten::mm", dims=[[512, 64], [64, 512]]),
        K=Ev("aten::add_", dims=[[512, 512]]),
        M=Ev("aten::_fused_sgd_", dims=[[[512, 512]]]),
        N=Ev("aten::_fused_adamw_", dims=[[[3, 512]]]),
    )


_TURNS = [(name, at + 1, (3, 512) if at % 2 else (512, 512)) for at, name in enumerate("ABCDEFGH")]
_TWO = {"optimizers": [{"name": "SGD", "tensors": 1}, {"name": "SGD", "tensors": 1}]}

UNUSED_GRADIENTS = [
    Example(
        "a new head on a network that is not trained",
        _drawn((3, 512), (512, 512)),
        facts=_frozen(1),
        saves_us=(800, 1900),
        says=("gradients of 2 parameters", "updates 1"),
    ),
    Example("all parameters are updated", _drawn((3, 512), (512, 512)), facts=_frozen(2)),
    Example(
        "fakes that are not detached: the generator's gradients are dropped before its own pass",
        _in_turns(added=False),
        facts=_TWO,
        saves_us=(500, 1200),
        says=("cleared before",),
    ),
    Example(
        "both losses train the generator: its gradients add up until its optimizer steps",
        _in_turns(added=True),
        facts=_TWO,
        near_miss=True,
    ),
    Example(
        "a maker's loss goes through the judge, whose gradients are cleared before its own pass",
        _through(*_THROUGH),
        facts=_TWO,
        saves_us=(400, 1300),
        says=("goes through a network that this loss does not train",),
        fixes=("requires_grad_(False)",),
    ),
    Example("the judge's optimizer applies what both losses add up", _through(*_LATE), facts=_TWO, near_miss=True),
    Example(
        "a tensor of the batch has a gradient, too, that nobody reads",
        _drawn((3, 512), (64, 512), known=False),
        facts=_frozen(1),
        saves_us=(800, 1900),
        says=("of 1 tensor other than parameters",),
    ),
    Example(
        "the gradient of a batch is drawn as a picture",
        _drawn((3, 512), (64, 512), known=False, read=True),
        facts=_frozen(1),
        near_miss=True,
    ),
    Example(
        "an attack asks for the gradient of its pictures by backward()",
        _attack(),
        facts=_frozen(1),
        saves_us=(800, 1900),
        says=("for the gradient of an input", "those of 1 parameter"),
    ),
    Example(
        "a penalty on the batch, whose gradients of the layer add to those of the loss",
        _attack(added=True),
        facts=_frozen(1),
        near_miss=True,
    ),
    Example("the layer's gradient is read as well", _attack(read=True), facts=_frozen(1), near_miss=True),
    Example(
        "what is trained comes last in the backward pass",
        _drawn((512, 512), (3, 512), fill=0.02),
        facts=_frozen(1),
        near_miss=True,
    ),
]

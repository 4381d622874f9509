"""Gradients are computed that no optimizer applies.

## What it looks at
The gradients that each backward pass stores, against the parameters that the optimizers update, identified by their
shapes and numbers. Some belong to parameters that are in no optimizer; others are cleared before a step of their
optimizer: the next backward pass then finds no gradient to accumulate into. Where one pass stores more gradients than
all optimizers have parameters, those that accumulate in every pass are distinguished from those that are cleared after
each step, even if their shapes are equal: a target network's from the network's. What the backward pass does after the
last used gradient is wasted, and so is the path from a layer that passes no gradient on to where a used one is
computed. Within layers whose gradient is passed on, the matrix multiplications that only compute an unused gradient
count. Then come gradients of a network that the pass goes through on the way to what it trains, if no other pass starts
from the same forward pass. Then come gradients of tensors that are not parameters, such as a batch with
`requires_grad`: they count if no op uses a tensor of that shape until the next forward pass. Last come passes that are
run for the gradient of such a tensor, as in an adversarial attack, and also store gradients of parameters that no
optimizer applies and no op reads.

## Why it costs time
Leaving parameters out of the optimizer does not stop autograd: it continues through a frozen network down to its first
layer, computes a gradient for every weight, and keeps all activations of the forward pass for that. That is up to two
thirds of the work on the frozen part, and its memory.

## How to fix it
`backbone.requires_grad_(False)` for what is not trained. Where a part is only used, as a teacher or a target network,
`with torch.no_grad():` around its forward pass does the same. Where a loss trains one of two networks, as in a GAN:
`discriminator(fake.detach())`. Where the gradient must go through a network that the loss does not train, as a
generator's through the discriminator, freeze it meanwhile: `discriminator.requires_grad_(False)` before the forward
pass, and `requires_grad_(True)` after the backward pass. With DistributedDataParallel, call
`discriminator.module(fake)` then: its gradients are not exchanged either. A batch needs no `requires_grad_()`, nor
`Variable(batch, requires_grad=True)`. Where only the gradient of an input is wanted: `torch.autograd.grad(loss,
inputs)`.

## When to leave it
Gradients that the script itself reads, for a penalty or a plot, or applies without an optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import (
    OPTIMIZER,
    BackwardPasses,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Library,
    Lines,
    Missing,
    OptimizerFacts,
    Price,
    backward_passes,
    draw,
)

from ..shared._places import first_line, forward_lines
from ..shared._words import count, each_step, plural
from ._for_inputs import with_aside
from ._gradient_uses import ASIDE, DROPPED, NEVER, THROUGH, UNREAD, parameters, updates, uses
from ._input_gradients import with_unread
from ._needless_nodes import Needless, needless, saving_of

CONFIRMED = (
    "measured pairs on a CPU: a head, adapters, a student, a discriminator and target networks, with and without "
    "gradients of the other parts"
)

# Rows whose line is asked for, the longest first; where these have none, neither have others.
_TRIED = 8


def check(
    price: Price,
    facts: OptimizerFacts,
    backward: BackwardPasses,
    lines: Lines | None,
    library: Library,
    *,
    min_share: float = 0.02,  # one line to add; below 2 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    numbers = [one.tensors for one in facts.optimizers if one.tensors]
    if not numbers or len(numbers) < len(facts.optimizers):
        return
    trace, steps, nesting = price.ops.trace, price.ops.steps, price.ops.nesting
    found = backward.all
    most = max((len(one.stores) for one in found), default=0)
    known = parameters(trace, nesting, facts.optimizers)
    # Without a gradient too many for all optimizers, or for one of several, all may be used.
    if most <= min(numbers):
        return
    if not known.applied:
        raise Missing(
            "which gradients are applied is not known: the trace has no op inside an optimizer's step (torch before "
            "2.3 does not record them once torch.compile was used)"
        )
    verdicts = uses(found, updates(trace, nesting, facts.optimizers, found), known)
    verdicts = with_unread(trace, steps, nesting, found, verdicts)
    verdicts = with_aside(trace.events, nesting, found, verdicts)
    wrapped = library.name == "ddp"
    fewest = min(numbers)
    kinds = ((NEVER, known.number), (DROPPED, fewest), (THROUGH, fewest), (UNREAD, known.number), (ASIDE, fewest))
    for kind, least in kinds:
        rows = needless(trace, found, verdicts, kind) if most > least else None
        if rows is None:
            continue
        saving, sure_us, claims = saving_of(price, rows)
        if saving.high_us < min_share * price.scale.step_us:
            continue
        nodes = rows.nodes if len(rows.nodes) else rows.makers
        longest = nodes[np.argsort(-price.ops.events.dur_ns[nodes])]
        where = first_line(lines, longest[:_TRIED] if len(rows.nodes) else rows.sure[:_TRIED])
        forward = forward_lines(lines, price.ops.trace, longest) if kind not in (UNREAD, ASIDE) else ()
        yield Finding(
            message=_message(kind, rows, known.number, each_step(price, sure_us)),
            saving=saving,
            where=forward + ((where,) if where else ()),
            facts={"gradients": rows.gradients, "updated": known.number, "unread": rows.unread, "needless_us": sure_us},
            fix=_THROUGH_WRAPPER if kind == THROUGH and wrapped else _FIXES[kind],
            claims=claims,
            # What no op reads in the recorded steps the script may still keep, for its end.
            at_most="medium" if kind == UNREAD else "high",
        )


def _message(kind: int, rows: Needless, applied: int, spent: str) -> str:
    if kind == NEVER:
        return (
            f"A backward pass computes gradients of {count(rows.gradients)} parameters, of which the optimizer updates "
            f"{count(applied)}: {spent} goes into gradients that are never applied."
        )
    if kind == UNREAD:
        return (
            f"A backward pass computes gradients of {plural(rows.unread, 'tensor')} other than parameters (typically "
            f"the batch), and no op reads them: {spent} at least."
        )
    if kind == ASIDE:
        return (
            "A backward pass is run for the gradient of an input, as for an attack or a penalty, and computes those of "
            f"{plural(rows.unread, 'parameter')} as well, which no optimizer applies: {spent}."
        )
    if kind == THROUGH:
        return (
            "A backward pass goes through a network that this loss does not train, and computes the gradients of "
            f"{plural(rows.unread, 'parameter')} of it, which are cleared before an optimizer applies them: {spent}."
        )
    return (
        f"A backward pass computes gradients of {plural(rows.unread, 'parameter')} that are cleared before "
        f"an optimizer applies them: {spent}."
    )


_FIXES = {
    NEVER: Fix(
        "Call `requires_grad_(False)` on parameters that are not trained",
        "exact",
        "optimizer = torch.optim.AdamW(model.head.parameters(), ...)",
        "model.backbone.requires_grad_(False)\noptimizer = torch.optim.AdamW(model.head.parameters(), ...)",
    ),
    UNREAD: Fix(
        "Remove `requires_grad_()` from the batch",
        "exact",
        "inputs = batch.to(device).requires_grad_()\nscores = model(inputs)",
        "scores = model(batch.to(device))",
    ),
    ASIDE: Fix(
        "Compute only the gradient of the input",
        "exact",
        "loss.backward()\ngradient = inputs.grad",
        "(gradient,) = torch.autograd.grad(loss, inputs)",
    ),
    DROPPED: Fix(
        "Detach the input from the network that this loss does not train",
        "exact",
        "loss = criterion(discriminator(fake), zeros)",
        "loss = criterion(discriminator(fake.detach()), zeros)",
    ),
    THROUGH: Fix(
        "Freeze the network for this loss with `requires_grad_(False)`",
        "exact",
        "loss = criterion(discriminator(fake), ones)\nloss.backward()",
        "discriminator.requires_grad_(False)\nloss = criterion(discriminator(fake), ones)\nloss.backward()\n"
        "discriminator.requires_grad_(True)",
    ),
}
# The reducer would wait for gradients of the frozen parameters.
_THROUGH_WRAPPER = Fix(
    "Freeze the network for this loss with `requires_grad_(False)`, and call it as `.module`",
    "exact",
    "loss = criterion(discriminator(fake), ones)\nloss.backward()",
    "discriminator.requires_grad_(False)\nloss = criterion(discriminator.module(fake), ones)\nloss.backward()\n"
    "discriminator.requires_grad_(True)",
)


def _node(number: int) -> Ev:
    return Ev(f"{backward_passes.NODE}: AddmmBackward0", args={"Sequence number": number, "Fwd thread id": 1})


def _linear(number: int, *weights: int) -> Ev:
    return Ev("aten::linear", dims=[[64, 512], list(weights)], args={"Sequence number": number, "Fwd thread id": 0})


def _stored(*shape: int, fill: float = 1.0) -> Ev:
    return Ev(backward_passes.STORES, dims=[list(shape)], launches="", fill=fill)


_STEPS = """
    step   [1                                    ][2                                    ]
    cpu    [A  ][B  ][Y ][T ][Z       ][S ][O ]    [C  ][D  ][W ][U ][X       ][V ][P ]
    cpu                                    [M]                                    [Q]
    """
_UPDATE = Ev("aten::_fused_adamw_", dims=[[[3, 512]], [[3, 512]]])  # type: ignore[list-item]


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
        Y=_node(2),
        T=_stored(*head, fill=fill),
        Z=_node(1),
        S=_stored(*backbone, fill=fill),
        C=_linear(3, *(backbone if known else head)),
        D=_linear(4, *head),
        W=_node(4),
        U=_stored(*head, fill=fill),
        X=_node(3),
        V=_stored(*backbone, fill=fill),
        O=OPTIMIZER,
        P=OPTIMIZER,
        M=_UPDATE,
        Q=_UPDATE,
        **more,
    )


def _in_turns(*, added: bool) -> Drawing:
    """A discriminator's pass that runs on through the generator, then the generator's own; each has an optimizer."""
    kept = Ev("aten::add_" if added else "aten::detach", dims=[[512, 512]])
    rows: dict[str, Any] = {name: _linear(at, *shape) for name, at, shape in _TURNS}
    rows |= {name: _node(at) for name, at in zip("YZWXyzwx", (2, 1, 4, 3, 6, 5, 8, 7), strict=True)}
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
        N=Ev("aten::_fused_sgd_", dims=[[[512, 512]], [[512, 512]]]),  # type: ignore[list-item]
    )


def _attack(*, added: bool = False, read: bool = False) -> Drawing:
    """A pass for the gradient of a batch (S) that stores a layer's beside it (T), then the loss's own pass (U).

    added: the layer's gradients add up until the optimizer applies them; read: something reads the layer's (R).
    """
    rows: dict[str, Any] = {name: _linear(at, 512, 512) for at, name in enumerate("ABCD", 1)}
    rows |= {name: _node(at) for at, name in enumerate("YZWX", 1)} | dict.fromkeys("OP", OPTIMIZER)
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
        M=Ev("aten::_fused_adamw_", dims=[[[512, 512]]]),  # type: ignore[list-item]
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
    rows |= {name: _node(at) for name, at in zip("YWZywz", (1, 3, 2, 4, 6, 5), strict=True)}
    rows |= {"T": _stored(512, 512), "U": _stored(512, 512), "S": _stored(3, 512)}
    blank = " " * (len(ops) - 3)
    return draw(
        f"step   [1{blank}][2{blank}]\ncpu    {ops}{ops.translate(_NEXT_STEP)}\ncpu    {inside}{inside}\n",
        us=100,
        **rows,
        G=Ev("aten::mm", dims=[[64, 512], [512, 512]]),
        H=Ev("aten::mm", dims=[[512, 64], [64, 512]]),
        K=Ev("aten::add_", dims=[[512, 512]]),
        M=Ev("aten::_fused_sgd_", dims=[[[512, 512]]]),  # type: ignore[list-item]
        N=Ev("aten::_fused_adamw_", dims=[[[3, 512]]]),  # type: ignore[list-item]
    )


_TURNS = [(name, at + 1, (3, 512) if at % 2 else (512, 512)) for at, name in enumerate("ABCDEFGH")]
_TWO = {"optimizers": [{"name": "SGD", "tensors": 1}, {"name": "SGD", "tensors": 1}]}

EXAMPLES = [
    Example(
        "a new head on a network that is not trained",
        _drawn((3, 512), (512, 512)),
        facts=_frozen(1),
        saves_us=(800, 1900),
        says=("gradients of 2 parameters", "updates 1"),
    ),
    Example("all parameters are updated", _drawn((3, 512), (512, 512)), facts=_frozen(2), saves_us=None),
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
        saves_us=None,
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
    Example(
        "the judge's optimizer applies what both losses add up",
        _through(*_LATE),
        facts=_TWO,
        saves_us=None,
        near_miss=True,
    ),
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
        saves_us=None,
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
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "the layer's gradient is read as well", _attack(read=True), facts=_frozen(1), saves_us=None, near_miss=True
    ),
    Example(
        "what is trained comes last in the backward pass",
        _drawn((512, 512), (3, 512), fill=0.02),
        facts=_frozen(1),
        saves_us=None,
        near_miss=True,
    ),
]

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

import numpy as np

from advisor.api import BackwardPasses, Finding, Fix, Library, Lines, Missing, OptimizerFacts, Price, Settings, Source

from ..shared._places import TRIED, first_line, forward_lines, set_at
from ..shared._words import count, each_step, plural
from ._for_inputs import with_aside
from ._gradient_uses import ASIDE, DROPPED, NEVER, THROUGH, UNREAD, parameters, updates, uses
from ._input_gradients import with_unread
from ._needless_nodes import Needless, needless, saving_of
from ._unused_gradients_examples import UNUSED_GRADIENTS

CONFIRMED = (
    "measured pairs on a CPU: a head, adapters, a student, a discriminator and target networks, with and without "
    "gradients of the other parts"
)


def check(
    price: Price,
    facts: OptimizerFacts,
    backward: BackwardPasses,
    lines: Lines | None,
    library: Library,
    settings: Settings | None,
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
        asked = set_at(settings, "requires_grad") if kind == UNREAD else ()
        yield Finding(
            message=_message(kind, rows, known.number, each_step(price, sure_us)),
            saving=saving,
            where=asked + _where(price, lines, rows, forward=kind not in (UNREAD, ASIDE)),
            facts={"gradients": rows.gradients, "updated": known.number, "unread": rows.unread, "needless_us": sure_us},
            fix=_THROUGH_WRAPPER if kind == THROUGH and wrapped else _FIXES[kind],
            claims=claims,
            # What no op reads in the recorded steps the script may still keep, for its end.
            at_most="medium" if kind == UNREAD else "high",
        )


def _where(price: Price, lines: Lines | None, rows: Needless, *, forward: bool) -> tuple[Source, ...]:
    """The line of the backward pass; with `forward` those whose ops it belongs to, before it."""
    nodes = rows.nodes if len(rows.nodes) else rows.makers
    longest = nodes[np.argsort(-price.ops.events.dur_ns[nodes])]
    where = first_line(lines, longest[:TRIED] if len(rows.nodes) else rows.sure[:TRIED])
    before = forward_lines(lines, price.ops.trace, longest) if forward else ()
    return before + ((where,) if where else ())


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

EXAMPLES = UNUSED_GRADIENTS

"""Rules about backward passes, on traces that PyTorch writes here and now."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch_steps import Step, network, outcome

from advisor.capture.record import Optimizer, RankRecord

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]


def recorded(*optimizers: Any) -> RankRecord:
    """What capture tells of these optimizers."""
    sizes = [sum(len(group["params"]) for group in one.param_groups) for one in optimizers]
    return RankRecord(optimizers=[Optimizer("SGD", tensors=size) for size in sizes])


def plain(*modules: Any) -> Any:
    """An optimizer for all of their parameters."""
    return torch.optim.SGD([parameter for one in modules for parameter in one.parameters()], lr=1e-3)


def with_targets(*, graph: bool, zeroed: bool = False) -> tuple[Step, RankRecord, int]:
    """(a step against the answer of an older copy of two networks, the record, how many parameters the copies have)."""
    nets = torch.nn.ModuleList([network(), network()])
    old = copy.deepcopy(nets)
    optimizer = plain(nets)
    x = torch.randn(128, 64)

    def wanted() -> Any:
        with torch.set_grad_enabled(graph):
            return torch.minimum(*(one(x) for one in old))

    def step() -> None:
        target = wanted()
        loss = sum((one(x) - target).square().mean() for one in nets)
        optimizer.zero_grad(set_to_none=not zeroed)
        loss.backward()
        optimizer.step()

    return step, recorded(optimizer), len(list(old.parameters()))


def test_the_targets_of_an_older_copy_are_found_by_gradients_that_pile_up(tmp_path: Path) -> None:
    step, record, number = with_targets(graph=True)
    found = outcome("unused-gradients", step, tmp_path, record)
    assert found.status == "found"
    assert [one.facts["unread"] for one in found.findings] == [number]
    assert [one.facts["gradients"] for one in found.findings] == [2 * number]


@pytest.mark.parametrize(("graph", "zeroed"), [(False, False), (True, True)])
def test_targets_without_a_graph_or_gradients_that_are_zeroed_in_place_tell_nothing(
    graph: bool, zeroed: bool, tmp_path: Path
) -> None:
    step, record, _ = with_targets(graph=graph, zeroed=zeroed)
    assert outcome("unused-gradients", step, tmp_path, record).status == "clear"


class Heads:
    """A trunk and two heads."""

    def __init__(self) -> None:
        self.trunk = network()
        self.heads = [torch.nn.Linear(1, 1) for _ in range(2)]
        self.all = torch.nn.ModuleList([self.trunk, *self.heads])

    def losses(self, x: Any) -> list[Any]:
        seen = self.trunk(x)
        return [head(seen).square().mean() for head in self.heads]


def singly(model: Heads, x: Any) -> None:
    for loss in model.losses(x):
        loss.backward(retain_graph=True)


def together(model: Heads, x: Any) -> None:
    sum(model.losses(x)).backward()


def in_two_batches(model: Heads, x: Any) -> None:
    for part in x.chunk(2):
        together(model, part)


def with_two_graphs(model: Heads, x: Any) -> None:
    for number in range(2):
        model.losses(x)[number].backward(retain_graph=True)


def projected(model: Heads, x: Any) -> None:
    """The gradients of each loss by themselves, as PCGrad takes them."""
    taken = []
    for loss in model.losses(x):
        model.all.zero_grad()
        loss.backward(retain_graph=True)
        taken.append([parameter.grad.clone() for parameter in model.trunk.parameters()])
    for parameter, *grads in zip(model.trunk.parameters(), *taken, strict=True):
        parameter.grad = sum(grads)


def read_between(model: Heads, x: Any) -> None:
    """How much each loss adds to the gradients."""
    for loss in model.losses(x):
        loss.backward(retain_graph=True)
        torch.stack([parameter.grad.norm() for parameter in model.trunk.parameters()]).sum()


def weighed(model: Heads, x: Any) -> None:
    """The norm of each loss's gradient first, as GradNorm wants it."""
    losses = model.losses(x)
    last = model.trunk[4].weight
    norms = [torch.autograd.grad(loss, last, retain_graph=True)[0].norm() for loss in losses]
    sum(loss / norm for loss, norm in zip(losses, norms, strict=True)).backward()


def penalised(model: Heads, x: Any) -> None:
    """A loss with the slope of the network in it: the graph is differentiated twice."""
    at = x.clone().requires_grad_()
    out = model.trunk(at)
    (slope,) = torch.autograd.grad(out.sum(), at, create_graph=True)
    (out.square().mean() + slope.square().mean()).backward()


def curved(model: Heads, x: Any) -> None:
    """Gradients of gradients by backward() itself."""
    first, second = model.losses(x)
    first.backward(create_graph=True)
    second.backward()


Way = Callable[[Heads, Any], None]


def trained(model: Heads, way: Way) -> Step:
    """A training step whose gradients come this way."""
    optimizer = plain(model.all)
    x = torch.randn(256, 64)

    def step() -> None:
        optimizer.zero_grad()
        way(model, x)
        optimizer.step()

    return step


def test_losses_that_go_backward_one_by_one_are_found(tmp_path: Path) -> None:
    model = Heads()
    found = outcome("repeated-backward", trained(model, singly), tmp_path)
    assert found.status == "found"
    (finding,) = found.findings
    assert finding.facts["passes"] == 2
    # Three linear layers with a view of each weight, two activations between them.
    assert finding.facts["shared_nodes"] == 8
    assert finding.saving is not None
    assert 0 < finding.saving.low_us <= finding.saving.high_us


@pytest.mark.parametrize(
    "way", [together, in_two_batches, with_two_graphs, projected, read_between, weighed, penalised, curved]
)
def test_passes_that_no_sum_of_losses_can_replace_are_left_alone(way: Way, tmp_path: Path) -> None:
    assert outcome("repeated-backward", trained(Heads(), way), tmp_path).status == "clear"


def test_a_step_of_the_optimizer_between_two_passes_keeps_them_apart(tmp_path: Path) -> None:
    model = Heads()
    optimizers = [plain(model.heads[0]), plain(model.heads[1])]
    x = torch.randn(256, 64)

    def step() -> None:
        for loss, optimizer in zip(model.losses(x), optimizers, strict=True):
            loss.backward(retain_graph=True)
            optimizer.step()
        model.all.zero_grad()

    assert outcome("repeated-backward", step, tmp_path).status == "clear"


def test_two_backward_calls_without_an_op_between_them_are_two_passes(tmp_path: Path) -> None:
    model, x = Heads(), torch.randn(256, 64)
    optimizer = plain(model.all)
    given = torch.ones(256, 1)

    def step() -> None:
        optimizer.zero_grad()
        seen = model.trunk(x)
        first, second = (head(seen) for head in model.heads)
        first.backward(given, retain_graph=True)
        second.backward(given)
        optimizer.step()

    found = outcome("repeated-backward", step, tmp_path)
    assert found.status == "found"
    assert found.findings[0].facts["passes"] == 2
    assert outcome("unused-gradients", step, tmp_path, recorded(optimizer)).status == "clear"


@pytest.mark.parametrize(
    "calls", ["each", "one", "jacobian", "shared ones", "outputs", "split, shared ones", "divergence"]
)
def test_derivatives_by_several_inputs(calls: str, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2), torch.nn.Tanh())
    optimizer = plain(model)
    rows = list(torch.eye(3)[:, None].expand(-1, 256, -1))

    def slopes(x: Any, y: Any, t: Any) -> tuple[Any, ...]:
        inputs = (x, y, t)
        if calls in ("split, shared ones", "divergence"):  # all inputs lie behind one node, all outputs before one
            outs = model(torch.cat(inputs, dim=1)).split(1, dim=1)
            ones = torch.ones_like(outs[0])
            pairs = zip(outs, inputs, strict=False) if calls == "divergence" else ((outs[0], one) for one in inputs)
            return tuple(torch.autograd.grad(out, one, ones, create_graph=True)[0] for out, one in pairs)
        hidden = model(torch.cat((2 * x, 1 - y, t), dim=1))
        u = hidden.sum(dim=1, keepdim=True)
        if calls == "one":
            return tuple(torch.autograd.grad(u, inputs, torch.ones_like(u), create_graph=True))
        if calls == "jacobian":
            wide = hidden.repeat(1, 2)[:, :3] * torch.ones(3)
            return tuple(torch.autograd.grad(wide, x, row, create_graph=True)[0] for row in rows)
        if calls == "outputs":
            outs = hidden.unbind(dim=1)
            return tuple(torch.autograd.grad(one, x, torch.ones_like(one), create_graph=True)[0] for one in outs)
        ones = torch.ones_like(u)
        return tuple(
            torch.autograd.grad(u, one, ones if "shared" in calls else torch.ones_like(u), create_graph=True)[0]
            for one in inputs
        )

    def step() -> None:
        optimizer.zero_grad()
        loss = sum(one.square().mean() for one in slopes(*(torch.rand(256, 1, requires_grad=True) for _ in range(3))))
        loss.backward()
        optimizer.step()

    found = outcome("repeated-backward", step, tmp_path)
    assert found.status == ("found" if calls in ("each", "shared ones", "split, shared ones") else "clear")
    assert [one.facts["calls"] for one in found.findings] == [3] * len(found.findings)

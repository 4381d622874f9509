"""A second forward pass, and one for nobody, on traces that PyTorch writes here and now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from observed_runs import observed
from torch_steps import network, outcome, trained, without_gradients

from advisor.capture.record import Optimizer, RankRecord

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]


def test_a_second_forward_pass_is_found_and_one_under_no_grad_is_not(tmp_path: Path) -> None:
    model = network()
    again = outcome("second-forward", trained(model, before=model), tmp_path)
    assert again.status == "found"
    assert again.findings[0].facts["per_step"] == 1
    assert outcome("second-forward", trained(model, before=without_gradients(model)), tmp_path).status == "clear"
    # After the optimizer's step the weights are others, and so are the numbers.
    assert outcome("second-forward", trained(model, after=model), tmp_path).status == "clear"
    assert outcome("evaluation-with-gradients", trained(model, after=model), tmp_path).status == "found"
    assert outcome("second-forward", trained(model), tmp_path).status == "clear"


@pytest.mark.complete
def test_a_pass_under_no_grad_is_second_where_it_reads_what_the_trained_one_read(tmp_path: Path) -> None:
    """Under autocast, too; not for another batch, a network of the same form, other weights, or before the training."""
    model, other, elsewhere = network(), network(), torch.randn(512, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def said(before: Any = None, between: Any = None, after: Any = None) -> Any:
        x = torch.randn(512, 64)

        def aside(run: Any) -> None:
            if run:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    without_gradients(run)(x)

        def step() -> None:
            aside(before)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(x).float().square().mean()
            optimizer.zero_grad()
            loss.backward()
            aside(between)
            optimizer.step()
            aside(after)

        return outcome("second-forward", step, tmp_path, observed(tmp_path, step).record)

    found = said(between=model)
    assert found.status == "found"
    assert (found.findings[0].facts["per_step"], found.findings[0].facts["ops"]) == (1, 5)
    assert said(between=lambda x: model(elsewhere)).status == "clear"
    assert said(between=other).status == "clear"
    assert said(after=model).status == "clear"
    assert said(before=model).status == "clear"


def test_a_pass_after_the_update_is_second_where_it_reads_the_batch_and_ends_in_a_number(tmp_path: Path) -> None:
    """Not for another batch or other weights, not where its output is kept, and not with other running statistics."""
    model, other, elsewhere = network(), network(), torch.randn(512, 64)
    kept: list[Any] = []

    def figure(output: Any) -> float:
        return float(output.detach().abs().mean())

    def said(after: Any, trained: Any = model) -> Any:
        optimizer = torch.optim.SGD([*trained.parameters()], lr=1e-3)

        def step() -> None:
            x = torch.randn(512, 64)
            optimizer.zero_grad()
            trained(x).square().mean().backward()
            optimizer.step()
            after(x)

        return outcome("second-forward", step, tmp_path, observed(tmp_path, step).record)

    found = said(lambda x: figure(without_gradients(model)(x)))
    assert found.status == "found"
    assert (found.findings[0].facts["per_step"], found.findings[0].facts["ops"]) == (1, 5)
    assert said(lambda x: figure(model(x))).status == "found"
    assert said(lambda x: figure(model(elsewhere))).status == "clear"
    assert said(lambda x: figure(other(x))).status == "clear"
    assert said(lambda x: kept.append(without_gradients(model)(x).argmax(1))).status == "clear"
    counting = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.BatchNorm1d(512), torch.nn.Linear(512, 512))
    assert said(lambda x: figure(without_gradients(counting)(x)), counting).status == "clear"


def test_an_evaluation_is_told_from_a_second_forward_by_its_shapes(tmp_path: Path) -> None:
    model, validation = network(), torch.randn(2048, 64)
    step = trained(model, lambda x: model(validation))
    assert outcome("second-forward", step, tmp_path).status == "clear"
    found = outcome("evaluation-with-gradients", step, tmp_path)
    assert found.status == "found"
    # Passes are told apart by the time in their ops: on a busy machine one of the four looks like the trained one.
    assert round(found.findings[0].facts["per_step"]) == 1
    quiet = trained(model, without_gradients(lambda x: model(validation)))
    assert outcome("evaluation-with-gradients", quiet, tmp_path).status == "clear"
    assert outcome("evaluation-with-gradients", trained(model, before=model), tmp_path).status == "clear"


def test_losses_that_are_summed_before_one_backward_pass_are_all_followed(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = torch.randn(4, 256, 64)

    def step() -> None:
        optimizer.zero_grad()
        sum(model(x).square().mean() for x in batches).backward()
        optimizer.step()

    for rule in ("second-forward", "evaluation-with-gradients"):
        assert outcome(rule, step, tmp_path).status == "clear"


def test_stages_of_a_solver_that_are_not_used_are_no_second_forward_pass(tmp_path: Path) -> None:
    """It calls the network ten times for the result, and three times for an estimate of its error."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(128, 64)

    def step() -> None:
        optimizer.zero_grad()
        y = x
        for _ in range(10):
            y = y + 0.1 * model(y)
        for _ in range(3):
            model(y)
        y.square().mean().backward()
        optimizer.step()

    assert outcome("second-forward", step, tmp_path).status == "clear"


def test_what_a_distribution_checks_is_no_evaluation(tmp_path: Path) -> None:
    """A policy's actor and critic: the arguments are checked with gradients on, and the checks are thrown away."""
    policy = torch.nn.Linear(64, 3)
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        saved = []
        for _ in range(5):
            chances = torch.distributions.Categorical(policy(torch.randn(64)).softmax(-1))
            saved.append(chances.log_prob(chances.sample()))
        torch.stack(saved).sum().backward()
        optimizer.step()

    assert outcome("evaluation-with-gradients", step, tmp_path).status == "clear"


def test_checkpointed_blocks_and_frozen_networks_run_no_pass_in_vain(tmp_path: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    frozen, block, head = network(), torch.nn.Linear(1, 32), torch.nn.Linear(32, 1)
    frozen.requires_grad_(False)
    parameters = [*block.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-3)
    record = RankRecord(optimizers=[Optimizer("SGD", tensors=len(parameters))])
    x = torch.randn(32, 64)

    def step() -> None:
        optimizer.zero_grad()
        head(checkpoint(block, frozen(x), use_reentrant=False)).mean().backward()
        optimizer.step()

    for rule in ("unused-gradients", "second-forward", "evaluation-with-gradients"):
        assert outcome(rule, step, tmp_path, record).status == "clear"


def test_a_gradient_of_a_gradient_is_followed_as_well(tmp_path: Path) -> None:
    model = network()
    x = torch.randn(32, 64, requires_grad=True)

    def step() -> None:
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        slope.square().mean().backward()

    for rule in ("second-forward", "evaluation-with-gradients"):
        assert outcome(rule, step, tmp_path).status == "clear"

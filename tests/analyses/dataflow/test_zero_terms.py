"""What two observed steps say of terms that are multiplied by zero: torch's own observer on real steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]

from observed_runs import observed  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

Step = Callable[[], Any]
BODY, HEAD = nn.Linear(16, 16), nn.Linear(16, 4)
EXTRA, NORM = nn.Linear(16, 5), nn.BatchNorm1d(5)
X, Y, GATE, HELD = torch.randn(8, 16), torch.randint(0, 4, (8,)), nn.Parameter(torch.zeros(())), torch.zeros(())
LOGGED: list[float] = []


def both(join: Callable[[Any, Any], Any], extra: Callable[[Any], Any] = EXTRA) -> Step:
    """A step with a loss and a term: how they are joined, and what the term computes of the features."""

    def step() -> None:
        features = BODY(X).relu()
        term = extra(features).square().mean()
        join(functional.cross_entropy(HEAD(features), Y), term).backward()

    return step


def logged(main: Any, term: Any) -> Any:
    LOGGED.append(term.item())
    return main + 0.0 * term


def trained_apart(main: Any, term: Any) -> Any:
    term.backward(retain_graph=True)
    return main + 0.0 * term


@pytest.fixture
def watch(tmp_path: Path) -> Callable[[Step], Any]:
    """Observes a step: the ops that work for a term that is multiplied by zero, and those that Python reads as well."""

    def run(step: Step) -> Any:
        found = observed(tmp_path, step)
        terms = found.seen.zero_terms
        return terms and [[found.ops[at] for at in places] for places in (terms.ops, terms.told)]

    return run


TERM = ["linear", "square", "mean"]


@pytest.mark.parametrize(
    "join",
    [
        lambda main, term: main + 0.0 * term,
        lambda main, term: main + term * 0,
        lambda main, term: main + term.mul_(0.0),
        lambda main, term: main + HELD * term,
    ],
    ids=["fraction", "whole number", "in place", "tensor that is held"],
)
def test_a_product_with_zero(join: Any, watch: Any) -> None:
    ops, told = watch(both(join))
    assert (ops, told) == (TERM, [])


def test_zero_times_a_tensor_that_a_sum_adds(watch: Any) -> None:
    """The sum itself is needed for its other summand."""
    assert watch(both(lambda main, term: torch.add(main, term, alpha=0))) == [TERM, []]


def test_a_weight_that_is_a_product_with_zero(watch: Any) -> None:
    ops, _ = watch(both(lambda main, term: main + 0.0 * main.detach() * term))
    assert ops == [*TERM, "mul"]


def test_a_term_that_is_printed(watch: Any) -> None:
    assert watch(both(logged)) == [[], TERM]


def test_running_statistics_do_not_keep_a_term(watch: Any) -> None:
    ops, _ = watch(both(lambda main, term: main + 0.0 * term, lambda x: NORM(EXTRA(x))))
    assert ops == ["linear", "batch_norm", "square", "mean"]


@pytest.mark.parametrize(
    "join",
    [
        lambda main, term: main + 0.1 * term,
        lambda main, term: main + GATE * term,
        lambda main, term: main + term + 0.0 * term,
        lambda main, term: main + (term.detach() > 1e9).float() * term,
        trained_apart,
    ],
    ids=["not zero", "gate that is trained", "needed elsewhere", "computed from the batch", "with its own pass"],
)
def test_terms_that_count(join: Any, watch: Any) -> None:
    found = watch(both(join))
    assert found is None or not {"linear", "square"} & set(found[0] + found[1])


def test_parameters_that_are_touched_for_their_gradient(watch: Any) -> None:
    """As DistributedDataParallel wants it."""
    assert watch(both(lambda main, term: main + term + 0.0 * sum(p.sum() for p in NORM.parameters()))) is None


def test_a_checkpointed_layer_is_not_computed_for_it(watch: Any) -> None:
    """It runs forward and once more in the backward pass; so do the three steps here."""
    calls: list[int] = []

    def inner(x: Any) -> Any:
        calls.append(1)
        return HELD * EXTRA(x)

    watch(both(lambda main, term: main + term, lambda x: checkpoint(inner, x, use_reentrant=False)))
    assert len(calls) == 6


def balanced(main: Any, term: Any) -> Any:
    """Weighs a term by the gradient that it has at the last layer."""
    (gradient,) = torch.autograd.grad(term, BODY.weight, retain_graph=True)
    return main + 0.0 * gradient.norm() * term


def penalized(main: Any, term: Any) -> Any:
    (gradient,) = torch.autograd.grad(term, BODY.weight, create_graph=True)
    return main + gradient.square().sum() + 0.0 * term


def test_a_gradient_that_only_weighs_the_term(watch: Any) -> None:
    ops, _ = watch(both(balanced))
    assert set(TERM) <= set(ops)


def test_a_gradient_that_is_needed(watch: Any) -> None:
    found = watch(both(penalized))
    assert found is None or not {"linear", "square"} & set(found[0] + found[1])

"""How an optimizer's parameters are grouped, as run.json tells it."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def groups_of(groups: list[dict[str, Any]], **settings: Any) -> tuple[int, int]:
    """(groups, different settings) of an AdamW of these."""
    from advisor.capture.inside.facts.probe import optimizer_facts

    facts = optimizer_facts(torch.optim.AdamW(groups, **settings))
    return facts["groups"], facts["settings"]


def parameter() -> Any:
    return torch.nn.Parameter(torch.zeros(2))


def test_groups_are_counted_with_the_settings_that_differ() -> None:
    each = [{"params": [parameter()], "weight_decay": 0.01 if at % 2 else 0.0} for at in range(20)]
    assert groups_of(each) == (20, 2)
    assert groups_of([{"params": [parameter()], "lr": 0.1 * 0.9**at} for at in range(20)]) == (20, 20)
    assert groups_of([{"params": [parameter(), parameter()]}]) == (1, 1)


def test_names_of_parameters_are_no_settings() -> None:
    named = [{"params": [(f"layer{at}.weight", parameter())]} for at in range(3)]
    assert groups_of(named) == (3, 1)


def test_a_learning_rate_in_a_tensor_is_not_read() -> None:
    """It may lie on a device, where reading it waits: such groups count as different unless they share it."""
    shared = torch.tensor(0.1)
    groups = [{"params": [parameter()]} for _ in range(3)]
    assert groups_of(groups, lr=shared, foreach=False) == (3, 1)
    own = [{"params": [parameter()], "lr": torch.tensor(0.1)} for _ in range(3)]
    assert groups_of(own, lr=shared, foreach=False) == (3, 3)

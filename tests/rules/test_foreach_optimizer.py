"""The ops that torch's optimizers run on lists are those that foreach-optimizer counts."""

from __future__ import annotations

import contextlib
import inspect
import re
from typing import Any

import pytest

from advisor.rules.optimizer import loop_optimizer
from advisor.rules.optimizer._own_updates import fused_fix
from advisor.rules.optimizer.foreach_optimizer import kept_passes
from advisor.rules.shared._torch_optimizers import FOREACH_CLASSES, FUSED_CLASSES


# Counted by hand: lists read and written by each op of the update, beside those of one fused update.
@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "options", "fused", "listed"),
    [
        ("Adam", {}, 7, 3 + 2 + 3 + 2 + 2 + 2 + 4),
        ("AdamW", {}, 7, 2 + 3 + 2 + 3 + 2 + 2 + 2 + 4),
        ("Adam", {"amsgrad": True, "weight_decay": 0.1}, 9, 3 + 3 + 2 + 3 + 3 + 2 + 2 + 2 + 4),
        ("SGD", {"lr": 0.1, "momentum": 0.9}, 5, 2 + 3 + 3),
    ],
)
def test_the_ops_of_torchs_updates_are_known(name: str, options: dict[str, Any], fused: int, listed: int) -> None:
    torch = pytest.importorskip("torch")
    weights = [torch.nn.Parameter(torch.randn(8)) for _ in range(3)]
    for weight in weights:
        weight.grad = torch.randn(8)
    optimizer = getattr(torch.optim, name)(weights, foreach=True, **options)
    optimizer.step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        optimizer.step()
    names = [event.name.removeprefix("aten::_foreach_") for event in profile.events() if "_foreach_" in event.name]
    if name != "SGD":
        # Steps are counted on the host, which launches nothing.
        names.remove("add_")
    assert kept_passes(names, name) == pytest.approx(fused / listed)


def test_ops_that_nobody_counted_leave_it_open() -> None:
    assert kept_passes(["mul_", "addcdiv_", "maximum_of_another_kind"], "Adam") is None
    assert kept_passes(["add_"], "SGD") is None  # no momentum


@pytest.mark.torch
@pytest.mark.parametrize("name", loop_optimizer._CPU_GAIN)
def test_fused_updates_on_a_cpu_work_from_the_version_on_that_the_fix_names(name: str) -> None:
    """Before, torch raises: when the optimizer is made, or when it steps."""
    torch = pytest.importorskip("torch")
    title = fused_fix(name, None, on_device=False).title
    since = re.search(r"on a CPU: PyTorch (\d+)\.(\d+) or later", title)
    assert since is not None
    weight = torch.nn.Parameter(torch.ones(8))
    weight.grad = torch.ones(8)
    works = False
    with contextlib.suppress(TypeError, RuntimeError):
        getattr(torch.optim, name)([weight], lr=0.1, fused=True).step()
        works = True
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    assert works == (version >= tuple(int(part) for part in since.groups()))
    assert "PyTorch" not in fused_fix(name, None, on_device=True).title


@pytest.mark.torch
def test_classes_of_optimizers_have_the_argument_that_the_fix_names() -> None:
    optim = pytest.importorskip("torch").optim
    for name in FUSED_CLASSES:
        assert "fused" in inspect.signature(getattr(optim, name)).parameters
    for name in FOREACH_CLASSES:
        given = inspect.signature(getattr(optim, name)).parameters
        assert "foreach" in given
        assert "fused" not in given
        assert fused_fix(name, None, on_device=True).title == "Set `foreach=True`"

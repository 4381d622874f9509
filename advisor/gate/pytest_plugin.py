"""A pytest plugin: the fixture `advisor_step` profiles a step function and asserts budgets.

def test_train_step(advisor_step):
    advisor_step(train_step, max_syncs=0, max_cpu_ops=400)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from advisor.gate.step_profile import StepProfile


class AdvisorStep(Protocol):
    """What the fixture is."""

    def __call__(
        self, step: Callable[[], Any], *, steps: int = 5, warmup: int = 3, **limits: object
    ) -> StepProfile: ...


@pytest.fixture
def advisor_step(request: pytest.FixtureRequest) -> AdvisorStep:
    """Profiles a step function and fails the test where a budget is exceeded or was not measured.

    advisor_step(step, steps=5, warmup=3, max_ID=…, min_ID=…) returns the profile. ID is a metric or counter; without
    any, the budgets of `[tool.torch-advisor.gate]` hold. The test is skipped where torch is not installed.
    """

    def check(step: Callable[[], Any], *, steps: int = 5, warmup: int = 3, **limits: object) -> StepProfile:
        pytest.importorskip("torch", reason="advisor_step profiles with torch")
        from advisor.engine import config
        from advisor.gate.config import parse
        from advisor.gate.step_profile import profile_step

        table = limits or config.find(Path(request.config.rootpath)).gate
        chosen = parse(table).budgets
        found = profile_step(step, steps=steps, warmup=warmup)
        exceeded = found.exceeded(chosen)
        if exceeded:
            pytest.fail("over budget: " + "; ".join(exceeded), pytrace=False)
        return found

    return check

"""Texts of tensors, on traces that PyTorch writes here and now: which ops it formats them by may change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch_steps import outcome

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]

LAYER, BATCH = torch.nn.Linear(32, 32), torch.randn(16, 32)
LOGGER = logging.getLogger("silent")


def trained(told: Callable[[Any], None]) -> Callable[[], None]:
    """A step of training that tells of its outputs."""
    optimizer = torch.optim.SGD(LAYER.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        out = LAYER(BATCH)
        told(out)
        out.square().mean().backward()
        optimizer.step()

    return step


@pytest.mark.parametrize(
    ("told", "texts"),
    [
        (lambda out: LOGGER.debug(f"outputs {out}"), 1),
        (lambda out: LOGGER.debug(f"{out} after {BATCH}, mean {out.mean()}"), 2),  # a single number is no text
        (lambda out: LOGGER.debug("outputs %s", out), None),
        (lambda out: LOGGER.debug(f"mean {out.mean().item():.3f}"), None),
        (lambda out: LOGGER.debug(f"{out[torch.isfinite(out) & out.ne(0)].abs().max().item()}"), None),
    ],
    ids=["a text", "two texts", "not formatted", "a number", "the largest finite value"],
)
def test_texts_of_tensors(told: Callable[[Any], None], texts: int | None, tmp_path: Path) -> None:
    findings = outcome("printed-tensors", trained(told), tmp_path).findings
    assert [finding.facts["texts"] for finding in findings] == ([] if texts is None else [texts])
    for finding in findings:
        assert finding.saving is not None
        assert finding.saving.low_us > 0

"""Buffers that DistributedDataParallel copies between ranks: which they are, and whether the window changes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]

from torch import distributed, nn  # noqa: E402

from advisor.capture.inside.facts.sent_buffers import SentBuffers, wrappers  # noqa: E402


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("mask", torch.ones(128, 128).tril())
        self.register_buffer("codes", torch.zeros(4, 4), persistent=False)
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("nothing", None)

    def forward(self, x: Any) -> Any:
        self.codes.data.add_(1)  # no write that the tensor counts
        self.scale = self.scale * 2  # another tensor in its place
        return self.norm(self.layer(x))


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """One rank of one, which copies buffers all the same."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def recorded(model: Any, steps: int = 2, **wraps: Any) -> dict[str, dict[str, Any]]:
    wrapped = nn.parallel.DistributedDataParallel(model, **wraps)
    sent = SentBuffers()
    sent.window_opens([wrapped, model, object()])
    for _ in range(steps):
        wrapped(torch.randn(8, 4)).sum().backward()
    found = sent.record(wrappers([model, wrapped]), lambda name: {"line": 7} if name == "mask" else {})
    return {one["name"]: one for one in found}


@pytest.mark.usefixtures("alone")
def test_what_changes_is_told_from_what_does_not() -> None:
    found = recorded(Net())
    mask = found["Net.mask"]
    assert mask == {"name": "Net.mask", "tensors": 1, "bytes": 128 * 128 * 4, "still": True, "line": 7}
    assert next(iter(found)) == "Net.mask", "the largest first"
    changed = {name for name, one in found.items() if one["still"] is False}
    statistics = {f"BatchNorm1d.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    assert changed == {"Net.codes", "Net.scale", *statistics}


@pytest.mark.usefixtures("alone")
def test_without_a_look_before_nothing_is_known_of_changes() -> None:
    wrapped = nn.parallel.DistributedDataParallel(Net())
    found = SentBuffers().record([wrapped], lambda _: {})
    assert {one["still"] for one in found} == {None}


@pytest.mark.usefixtures("alone")
def test_what_is_not_sent_is_not_listed() -> None:
    """A buffer that is not persistent is sent, too."""
    model = Net()
    assert "Net.codes" in recorded(model)
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["mask"])
    assert "Net.mask" not in recorded(model)
    assert recorded(Net(), broadcast_buffers=False) == {}
    assert wrappers([Net(), object()]) == []

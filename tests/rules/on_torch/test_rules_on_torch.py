"""Rules on traces that PyTorch writes here and now: found where a small training has the fault, silent without it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from torch_steps import network, outcome, trained

from advisor.capture.record import RankRecord, Settings

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]


@pytest.mark.parametrize(("dropout", "risk"), [(0.1, "semantics"), (0.0, "numerics")])
def test_attention_that_drops_out_needs_more_than_another_call_on_a_cpu(
    dropout: float, risk: str, tmp_path: Path
) -> None:
    """nn.MultiheadAttention that returns its weights runs op by op; the fused kernel for CPUs has no dropout."""
    attention = torch.nn.MultiheadAttention(64, 4, dropout=dropout)
    optimizer = torch.optim.SGD(attention.parameters(), lr=1e-3)
    x = torch.randn(128, 8, 64)

    def step() -> None:
        optimizer.zero_grad()
        attention(x, x, x)[0].square().mean().backward()
        optimizer.step()

    found = outcome("unfused-attention", step, tmp_path)
    assert found.status == "found"
    fix = found.findings[0].fix
    assert fix is not None
    assert fix.risk == risk
    assert "need_weights=False" in fix.after
    assert ("dropout=0.0" in fix.after) == (risk == "semantics")


@pytest.mark.parametrize(("dropout", "risk"), [(0.2, "semantics"), (0.0, "numerics")])
def test_a_dropout_layer_that_drops_nothing_keeps_no_attention_from_the_fused_kernel(
    dropout: float, risk: str, tmp_path: Path
) -> None:
    """`nn.Dropout(config.dropout)` stands in most handwritten attention, and records an op where it is 0.0, too."""
    layer, dropped = torch.nn.Linear(64, 192), torch.nn.Dropout(dropout)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
    x = torch.randn(8, 128, 64)

    def step() -> None:
        optimizer.zero_grad()
        q, k, v = layer(x).chunk(3, dim=-1)
        (dropped((q @ k.transpose(-2, -1) / 8).softmax(-1)) @ v).square().mean().backward()
        optimizer.step()

    (found,) = outcome("unfused-attention", step, tmp_path).findings
    assert found.fix is not None
    assert found.fix.risk == risk
    assert ("without dropout" in found.fix.title) == (dropout > 0)


def test_a_product_with_one_hot_vectors_is_found_and_a_loss_on_one_hot_labels_is_not(tmp_path: Path) -> None:
    functional = torch.nn.functional
    index = torch.randint(0, 5000, (64,))
    linear = torch.nn.Linear(5000, 32, bias=False)

    def product() -> None:
        linear(functional.one_hot(index, 5000).float()).square().mean().backward()

    found = outcome("one-hot-inputs", product, tmp_path)
    assert found.status == "found"
    assert found.findings[0].facts["classes"] == 5000
    assert "nn.Embedding(5000, 32)" in (found.findings[0].fix.after if found.findings[0].fix else "")

    scores = torch.nn.Linear(32, 5000)
    x = torch.randn(64, 32)

    def loss() -> None:
        (scores(x).log_softmax(1) * functional.one_hot(index, 5000).float()).sum().backward()

    assert outcome("one-hot-inputs", loss, tmp_path).status == "clear"


@pytest.mark.parametrize(("length", "status"), [(256, "found"), (48, "clear")])
def test_padding_beyond_the_longest_sample(length: int, status: str, tmp_path: Path) -> None:
    table = torch.nn.Embedding(100, 64, padding_idx=0)
    layer = torch.nn.TransformerEncoderLayer(64, 2, 128, batch_first=True, dropout=0.0)
    samples = [torch.randint(1, 100, (size,)) for size in (20, 31, 48)]

    def step() -> None:
        tokens = torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)
        tokens = torch.nn.functional.pad(tokens, (0, length - tokens.shape[1]))
        layer(table(tokens)).square().mean().backward()

    found = outcome("excess-padding", step, tmp_path)
    assert found.status == status
    if status == "found":
        assert found.findings[0].facts["empty_share"] == pytest.approx(1 - 48 / 256)


def test_copies_of_all_weights_are_told_from_an_average_and_from_a_checkpoint(tmp_path: Path) -> None:
    model = network(1024)
    average = copy.deepcopy(model)

    def averaged(x: Any) -> None:
        with torch.no_grad():
            for ours, theirs in zip(average.parameters(), model.parameters(), strict=True):
                ours.lerp_(theirs, 0.1)

    def saved(x: Any) -> None:
        torch.save(model.state_dict(), tmp_path / "weights.pt")

    def copied(x: Any) -> None:
        copy.deepcopy(model.state_dict())

    found = outcome("weight-copies", trained(model, copied, 8), tmp_path)
    assert found.status == "found"
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    assert found.findings[0].facts["bytes"] == pytest.approx(weights, rel=0.05)
    for other in (averaged, saved, lambda x: list(model.state_dict())):
        assert outcome("weight-copies", trained(model, other, 8), tmp_path).status == "clear"
    assert outcome("frequent-checkpoints", trained(model, saved, 8), tmp_path).status == "found"
    for other in (averaged, copied):
        assert outcome("frequent-checkpoints", trained(model, other, 8), tmp_path).status == "clear"


def test_the_profiles_of_this_file_are_real(tmp_path: Path) -> None:
    outcome("second-forward", trained(network()), tmp_path)
    rows = json.loads((tmp_path / "trace.json").read_text("utf-8"))["traceEvents"]
    assert sum(str(row.get("name")).startswith("ProfilerStep#") for row in rows) == 4


@pytest.mark.parametrize(("dtype", "scaled", "status"), [("bfloat16", True, "found"), ("bfloat16", False, "clear")])
def test_loss_scaling_beside_bf16(dtype: str, scaled: bool, status: str, tmp_path: Path) -> None:
    if not hasattr(torch.amp, "GradScaler"):
        pytest.skip("this PyTorch has no GradScaler for CPUs")
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    x = torch.randn(8, 64)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    record = RankRecord(settings=Settings(autocast=True, autocast_dtype=dtype))
    assert outcome("needless-loss-scaling", step, tmp_path, record).status == status
    fp16 = RankRecord(settings=Settings(autocast=True, autocast_dtype="float16"))
    assert outcome("needless-loss-scaling", step, tmp_path, fp16).status == "clear"

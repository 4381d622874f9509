"""Rules on work that a cheaper op or another order does as well, on traces that PyTorch writes here and now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch_steps import outcome

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]

from observed_runs import observed  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

Loss = Callable[[], Any]


def trained(loss: Loss, *layers: Any) -> Callable[[], None]:
    """A step of training of these layers."""
    optimizer = torch.optim.SGD([weight for layer in layers for weight in layer.parameters()], lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def said(rule: str, step: Callable[[], None], folder: Path) -> list[Any]:
    """The findings of a rule that is told what ops read."""
    outcome_ = outcome(rule, step, folder, observed(folder, step).record)
    assert outcome_.status in ("found", "clear"), outcome_.reason
    return list(outcome_.findings)


HEAD, X = nn.Linear(16, 40), torch.randn(8, 16)


def rows_in_place(parts: int) -> Any:
    table = torch.zeros(8, parts, 40)
    for at in range(parts):
        table[:, at] = HEAD(X)
    return table.square().mean()


def stacked() -> Any:
    return torch.stack([HEAD(X) for _ in range(6)], 1).square().mean()


def added_in_place() -> Any:
    table = torch.zeros(8, 6, 40)
    for at in range(6):
        table[:, at].add_(HEAD(X))
    return table.square().mean()


def masked() -> Any:
    out = HEAD(X) * 1
    for bound in (0.5, 0.6, 0.7, 0.8):
        out[out > bound] = 0.0
    return out.square().mean()


@pytest.mark.parametrize(
    ("loss", "writes"),
    [
        (lambda: rows_in_place(6), 6.0),
        (lambda: rows_in_place(2), None),
        (stacked, None),
        (added_in_place, None),
        (masked, None),
    ],
    ids=["rows", "two rows", "stacked", "added", "masked"],
)
def test_writes_into_parts_of_a_table(loss: Loss, writes: float | None, tmp_path: Path) -> None:
    found = outcome("copies-by-slices", trained(loss, HEAD), tmp_path).findings
    assert [one.facts["writes"] for one in found] == ([] if writes is None else [writes])
    assert all(one.facts["numbers"] == 8 * 6 * 40 for one in found)


ENCODE, LEFT, RIGHT = nn.Linear(16, 12), torch.randn(30, 16), torch.randn(20, 16)


def squares() -> Any:
    return (ENCODE(LEFT)[:, None] - ENCODE(RIGHT)[None]).pow(2).sum(-1).softmax(1)[:, 0].mean()


def expanded() -> Any:
    left = ENCODE(LEFT).unsqueeze(1).expand(30, 20, 12)
    return (left - ENCODE(RIGHT).unsqueeze(0).expand(30, 20, 12)).abs().mean(2).exp().mean()


def cosines() -> Any:
    return functional.cosine_similarity(ENCODE(LEFT)[:, None], ENCODE(RIGHT)[None], dim=2).exp().mean()


def weighted() -> Any:
    """The weighted sum over a dimension that both have, written as a product of all pairs: a product of matrices."""
    weight = (ENCODE(LEFT) @ ENCODE(RIGHT).T).softmax(1)
    return (weight[:, :, None] * RIGHT[None]).sum(1).square().mean()


def directions() -> Any:
    apart = ENCODE(LEFT)[:, None] - ENCODE(RIGHT)[None]
    return (apart / apart.pow(2).sum(-1, keepdim=True).add(1).sqrt()).sum(1).square().mean()


def partners() -> Any:
    return (ENCODE(LEFT).repeat(20, 1) - torch.ones(600, 12)).pow(2).sum(-1).exp().mean()


def gated() -> Any:
    return (ENCODE(LEFT).repeat(20, 1) * torch.ones(12)).sum(-1).square().mean()


@pytest.mark.parametrize(
    ("loss", "compared"),
    [(squares, 1), (expanded, 1), (cosines, 1), (weighted, 1), (directions, 0), (partners, 0), (gated, 0)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_all_pairs_by_broadcasting(loss: Loss, compared: int, tmp_path: Path) -> None:
    found = said("broadcast-similarity", trained(loss, ENCODE), tmp_path)
    assert [one.facts["comparisons"] for one in found] == [1.0] * compared
    assert all(one.facts["numbers"] == 30 * 20 * (16 if loss is weighted else 12) for one in found)


def test_a_forward_pass_without_gradients_has_no_backward_pass_of_the_next_layer(tmp_path: Path) -> None:
    """Ops that record nothing carry the number that the next layer's node gets."""

    def loss(left: Any) -> Any:
        return ENCODE(left).square().mean()

    def compared() -> Any:
        similar = (LEFT[:, None] * LEFT[None]).sum(-1)
        return loss(LEFT + similar.mean())

    (found,) = said("broadcast-similarity", trained(compared, ENCODE), tmp_path)
    assert "Backward" not in found.message
    alone = said("broadcast-similarity", trained(lambda: loss(LEFT), ENCODE), tmp_path)
    assert alone == []


CONV, POINT, WIDE = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, 2, 1), nn.Conv2d(12, 2, 3, padding=1)
MAPS = torch.randn(2, 3, 16, 16)


def up(x: Any, mode: str = "bilinear") -> Any:
    return functional.interpolate(x, scale_factor=4, mode=mode)


def read_twice(maps: Any) -> Any:
    return POINT(maps).mean() + maps.square().mean()


@pytest.mark.parametrize(
    ("loss", "late"),
    [
        (lambda: POINT(up(CONV(MAPS))).square().mean(), True),
        (lambda: POINT(up(CONV(MAPS), "nearest")).square().mean(), True),
        (lambda: up(POINT(CONV(MAPS))).square().mean(), False),
        (lambda: POINT(up(CONV(MAPS)).relu()).square().mean(), False),
        (lambda: WIDE(up(CONV(MAPS))).square().mean(), False),
        (lambda: read_twice(up(CONV(MAPS))), False),
    ],
    ids=["bilinear", "nearest", "first", "activation", "wide", "read twice"],
)
def test_maps_enlarged_before_a_layer(loss: Loss, late: bool, tmp_path: Path) -> None:
    found = said("late-projection", trained(loss, CONV, POINT, WIDE), tmp_path)
    assert [one.facts["growth"] for one in found] == ([16.0] if late else [])


READ, OVER_PAIRS, NORM = nn.Linear(16, 12), nn.Linear(24, 12), nn.LayerNorm(24)
SCENE = torch.randn(4, 10, 16)


def pairs(how: str) -> Any:
    x = READ(SCENE)
    mine, theirs = x.unsqueeze(2), x.unsqueeze(1)
    if how == "repeated":
        mine, theirs = mine.repeat(1, 1, 10, 1), theirs.repeat(1, 10, 1, 1)
    elif how in ("multiplied", "by a vector"):
        rows = x.flatten(0, 1)
        mine, theirs = rows.repeat_interleave(40, dim=0), rows.repeat(40, 1)
    elif how != "whole":
        mine, theirs = mine.expand(-1, -1, 10, -1), theirs.expand(-1, 10, -1, -1)
    if how == "flattened":
        mine, theirs = mine.reshape(4, 100, 12), theirs.reshape(4, 100, 12)
    if how == "whole":
        mine = theirs = (mine + theirs).relu()
    joined = torch.cat([mine, theirs], -1)
    if how in ("multiplied", "by a vector"):
        return (joined @ (OVER_PAIRS.weight.T if how == "multiplied" else OVER_PAIRS.weight[0])).relu().square().mean()
    return OVER_PAIRS(NORM(joined) if how == "normalised" else joined).relu().square().mean()


@pytest.mark.parametrize(
    ("how", "growth"),
    [
        ("expanded", 10.0),
        ("repeated", 10.0),
        ("flattened", 10.0),
        ("multiplied", 40.0),
        ("by a vector", 40.0),
        ("whole", None),
        ("normalised", None),
    ],
)
def test_pairs_joined_before_a_layer(how: str, growth: float | None, tmp_path: Path) -> None:
    found = said("late-projection", trained(lambda: pairs(how), READ, OVER_PAIRS, NORM), tmp_path)
    assert [one.facts["growth"] for one in found] == ([growth] if growth else [])


def test_the_order_that_is_advised_gives_the_same_results() -> None:
    x = READ(SCENE)
    first, second = OVER_PAIRS.weight.chunk(2, dim=1)
    added = functional.linear(x, first, OVER_PAIRS.bias).unsqueeze(2) + functional.linear(x, second).unsqueeze(1)
    mine, theirs = x.unsqueeze(2).expand(4, 10, 10, 12), x.unsqueeze(1).expand(4, 10, 10, 12)
    torch.testing.assert_close(added, OVER_PAIRS(torch.cat([mine, theirs], -1)))
    for mode in ("nearest", "bilinear", "bicubic"):
        torch.testing.assert_close(up(POINT(CONV(MAPS)), mode), POINT(up(CONV(MAPS), mode)), atol=1e-5, rtol=1e-4)


POINTS = torch.randn(6, 40, 16)


def both(found: Any) -> Any:
    return found.values[..., :2] + found.indices[..., :6].sum()


def sorted_(use: Loss) -> Loss:
    """A loss of one layer, beside a use of distances that nobody differentiates."""

    def loss() -> Any:
        with torch.no_grad():
            distance = torch.cdist(ENCODE(POINTS), ENCODE(POINTS))
            weight = use(distance)  # type: ignore[call-arg]
        return (ENCODE(POINTS) * weight.float().mean()).square().mean()

    return loss


@pytest.mark.parametrize(
    ("use", "read"),
    [
        (lambda x: x.argsort(-1)[..., :3], 3),
        (lambda x: x.sort(-1).values[:, :, :4], 4),
        (lambda x: x.sort(1, descending=True)[0][:, :5], 5),
        (lambda x: x.flatten().sort().values[-100:], 100),
        (lambda x: x.argsort(-1)[..., 1], 2),
        (lambda x: both(x.sort(-1)), 6),
        (lambda x: x.argsort(-1)[..., :30], None),
        (lambda x: x.argsort(-1).argsort(-1), None),
        (lambda x: x.sort(-1).values, None),
        (lambda x: x.sort(-1).values[..., ::4], None),
        (lambda x: x.argsort(-1)[0, :, :3], 3),
        (lambda x: x.topk(3, -1).values, None),
    ],
)
def test_sorts_of_which_a_part_is_read(use: Loss, read: int | None, tmp_path: Path) -> None:
    found = said("full-sort", trained(sorted_(use), ENCODE), tmp_path)
    assert [one.facts["elements_read"] for one in found] == ([] if read is None else [read])


CLASSES = 512
SCORE, LABELS = nn.Linear(16, CLASSES), torch.randint(0, CLASSES, (64,))
LABELLED = torch.randn(64, 16)


def wanted(smoothing: float = 0.1) -> Any:
    spread = functional.one_hot(LABELS, CLASSES).float()
    return spread * (1 - smoothing) + smoothing / CLASSES if smoothing else spread


def log_p() -> Any:
    return functional.log_softmax(SCORE(LABELLED), dim=1)


def scattered() -> Any:
    spread = torch.zeros(64, CLASSES).fill_(0.1 / (CLASSES - 1)).scatter_(1, LABELS[:, None], 0.9)
    spread[:, 0] = 0
    return functional.kl_div(log_p(), spread.clone().detach(), reduction="batchmean")


def logarithm() -> Any:
    return -(wanted(0.0) * (SCORE(LABELLED).softmax(1) + 1e-8).log()).sum(1).mean()


def mixed() -> Any:
    spread = wanted(0.0)
    return functional.cross_entropy(SCORE(LABELLED), 0.3 * spread + 0.7 * spread.flip(0))


def taught() -> Any:
    return functional.kl_div(log_p(), (LABELLED @ LABELLED.T).repeat(1, 8).softmax(1), reduction="batchmean")


def gathered() -> Any:
    score = log_p()
    return -0.9 * score.gather(1, LABELS[:, None]).mean() - 0.1 * score.mean()


def focal() -> Any:
    score = log_p()
    return -(wanted(0.0) * (1 - score.exp()) ** 2 * score).sum(1).mean()


def counted() -> Any:
    """The targets are read by something else, too."""
    spread = wanted()
    return -(spread * log_p()).sum(1).mean() * spread.amax().item()


@pytest.mark.parametrize(
    ("loss", "title"),
    [
        (lambda: -(wanted() * log_p()).sum(1).mean(), "smooth"),
        (lambda: (wanted() * -log_p()).sum() / 64, "smooth"),
        (lambda: -(wanted(0.0) * log_p()).mean(), "indices"),
        (scattered, "smooth"),
        (logarithm, "indices"),
        (lambda: functional.cross_entropy(SCORE(LABELLED), wanted(0.0)), "indices"),
        (lambda: functional.cross_entropy(SCORE(LABELLED), wanted(0.0), label_smoothing=0.1), "smooth"),
        (lambda: functional.cross_entropy(SCORE(LABELLED), LABELS, label_smoothing=0.1), ""),
        (mixed, ""),
        (taught, ""),
        (gathered, ""),
        (focal, ""),
        (counted, ""),
    ],
    ids=[
        *("smoothed", "negative scores", "plain", "scattered", "logarithm", "probabilities", "smoothed by the loss"),
        *("of indices", "mixed", "taught", "gathered", "focal", "counted"),
    ],
)
def test_labels_spread_out_to_a_number_for_each_class(loss: Loss, title: str, tmp_path: Path) -> None:
    found = said("dense-targets", trained(loss, SCORE), tmp_path)
    assert [one.facts["losses"] for one in found] == [1.0] * bool(title)
    for one in found:
        assert (one.facts["classes"], one.facts["numbers"]) == (CLASSES, 64 * CLASSES)
        assert title in one.fix.title
        assert 0 <= one.saving.low_us <= one.saving.high_us


@pytest.mark.parametrize(
    ("edges", "found"),
    [("stay", 1.0), ("select", 1.0), ("trained", None), ("drawn", None), ("read twice", None)],
)
def test_messages_along_edges(edges: str, found: float | None, tmp_path: Path) -> None:
    table = nn.Embedding(800, 48)
    source, target = torch.randint(0, 800, (2, 15_000))
    weight = nn.Parameter(torch.rand(15_000)) if edges == "trained" else torch.rand(15_000)

    def loss() -> Any:
        x = table.weight
        chosen = torch.randint(0, 800, (15_000,)) if edges == "drawn" else source
        rows = x.index_select(0, chosen) if edges == "select" else x[chosen]
        messages = rows * weight[:, None]
        out = torch.zeros_like(x).index_add(0, target, messages).square().mean()
        return out + messages.abs().mean() if edges == "read twice" else out

    class Weights(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight if isinstance(weight, nn.Parameter) else nn.Parameter(torch.ones(1))

    findings = said("scattered-messages", trained(loss, table, Weights()), tmp_path)
    assert len(findings) == (found is not None)
    assert all(one.facts["edges"] == 15_000 and one.facts["columns"] == 48 for one in findings)


WEIGHT, OTHERS = nn.Parameter(torch.randn(24, 32, 32)), nn.ParameterList(torch.randn(24, 32, 32) for _ in range(8))


@pytest.mark.parametrize(
    ("joined", "copies"),
    [
        (lambda: torch.stack([WEIGHT] * 8), 8),
        (lambda: torch.cat([WEIGHT[None]] * 8), 8),
        (lambda: torch.stack(list(OTHERS)), None),
        (lambda: torch.stack([WEIGHT, WEIGHT, *list(OTHERS)[:6]]), None),
        (lambda: WEIGHT.expand(8, 24, 32, 32), None),
    ],
    ids=["stacked", "joined", "weights of their own", "two of eight", "expanded"],
)
def test_a_tensor_that_is_stacked_with_itself(joined: Callable[[], Any], copies: int | None, tmp_path: Path) -> None:
    x = torch.randn(8, 24, 32, 1)
    step = trained(lambda: torch.matmul(joined(), x).square().mean(), OTHERS)
    findings = outcome("stacked-copies", step, tmp_path).findings
    assert [finding.facts["copies"] for finding in findings] == ([] if copies is None else [copies])

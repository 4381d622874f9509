"""What two observed steps say of features that are the same whenever a sample comes: torch's observer on real steps."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]

from capture_runs import capture  # noqa: E402
from observed_runs import Run, observed  # noqa: E402
from tiers import complete  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from advisor.analyses.dataflow.judged_steps import JudgedSteps  # noqa: E402
from advisor.capture.record import Features, read  # noqa: E402
from advisor.computed import Computed  # noqa: E402

Net = Callable[[Any], Any]
SIDE, BATCH = 8, 4


class Attention(nn.Module):
    """One product for queries, keys and values, taken apart as vision transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.mix, self.out = nn.Conv2d(3, 16, 4, 4), nn.Linear(16, 48), nn.Linear(16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, 16))

    def forward(self, x: Any) -> Any:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)
        query, key, value = self.mix(x).reshape(len(x), 5, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        weights = ((query * 0.35) @ key.transpose(-2, -1)).softmax(-1)
        return self.out((weights @ value).transpose(1, 2).reshape(len(x), 5, 16))[:, 0]


def convolutions(drop: float = 0.0) -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(drop), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


def frozen(net: Any, train: bool = False) -> Any:
    return net.requires_grad_(False).train(train)


def batches() -> Iterator[Any]:
    """Samples as a data set holds them, in an order of their own in each epoch."""
    data = TensorDataset(torch.rand(40, 3, SIDE, SIDE), torch.randint(0, 5, (40,)))
    while True:
        yield from DataLoader(data, batch_size=BATCH, generator=torch.Generator(), shuffle=True)


@pytest.fixture
def watch(tmp_path: Path) -> Callable[..., Run]:
    """Observes training of a head on what `features` makes of a batch."""

    def run(features: Net, head: Any = None, given: Iterator[Any] | None = None) -> Run:
        given, layer = given or batches(), head if head is not None else nn.Linear(16, 5)
        optimizer = torch.optim.AdamW([one for one in layer.parameters() if one.requires_grad], fused=True)

        def step() -> None:
            pictures, labels = next(given)
            loss = functional.cross_entropy(layer(features(pictures)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        step()
        return observed(tmp_path, step)

    return run


def chosen(pool: Any, *, other: Any = None, filled: bool = False) -> Iterator[Any]:
    """Rows of a tensor at indices of each batch. other: rows of this one, at other indices, are added."""
    labels = torch.randint(0, 5, (len(pool),))
    while True:
        rows = torch.randperm(len(pool))[:BATCH]
        pictures = pool[rows]
        if other is not None:
            pictures = pictures + other[torch.randperm(len(other))[:BATCH]]
        if filled:
            pool[0] = 0.5
        yield pictures, labels[rows]


def features_of(run: Run) -> Features:
    found = run.seen.features
    assert found is not None
    return found


def named(run: Run) -> list[str]:
    """The ops that make features, in order."""
    found = run.seen.features
    return [run.ops[at] for at in found.ops] if found else []


CONVOLVED = ["conv2d", "batch_norm", "relu_", "max_pool2d", "conv2d", "relu", "adaptive_avg_pool2d"]


def test_a_frozen_network_below_a_head(watch: Any) -> None:
    """All of it, and what goes with it: how large a sample is, and how large its features are, in bytes."""
    run = watch(frozen(convolutions()))
    assert named(run) == CONVOLVED
    found = features_of(run)
    assert (found.samples, found.layers, found.frozen) == (BATCH, 2, True)
    assert (found.kept_bytes, found.read_bytes) == (16 * 4, 3 * SIDE * SIDE * 4)


def test_samples_that_the_script_chooses_out_of_a_tensor(watch: Any) -> None:
    pool = torch.rand(40, 3, SIDE, SIDE)
    run = watch(frozen(convolutions()), given=chosen(pool))
    assert named(run) == CONVOLVED
    found = features_of(run)
    assert (found.samples, found.chosen_of, found.kept_bytes) == (BATCH, 40, 16 * 4)


def test_chosen_samples_that_are_no_samples_of_one_tensor(watch: Any) -> None:
    """One that is filled as it is read, and pairs of samples that meet by chance."""
    pool = torch.rand(40, 3, SIDE, SIDE)
    assert not named(watch(frozen(convolutions()), given=chosen(pool, filled=True)))
    assert not named(watch(frozen(convolutions()), given=chosen(pool, other=torch.rand(9, 3, SIDE, SIDE))))


def test_attention_keeps_samples_apart(watch: Any) -> None:
    found = named(watch(frozen(Attention())))
    assert [name for name in found if name in ("conv2d", "linear", "matmul", "softmax", "cat")] == (
        ["conv2d", "cat", "linear", "matmul", "softmax", "matmul", "linear"]
    )


def test_noise_upon_features_leaves_them_alone(watch: Any) -> None:
    net = frozen(convolutions())
    assert named(watch(lambda x: net(x) + torch.randn(BATCH, 16))) == CONVOLVED


class Taught(nn.Module):
    """A teacher that stays, and a student that is trained on the same samples."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher, self.student = frozen(convolutions()), nn.Conv2d(3, 16, 3)

    def forward(self, x: Any) -> Any:
        return self.student(x).mean((2, 3)) + self.teacher(x)


def test_a_teacher_beside_a_student_that_sees_the_same_samples(watch: Any) -> None:
    """The samples are loaded in any case."""
    run = watch(lambda x: x, Taught())
    assert named(run) == CONVOLVED
    assert features_of(run).read_bytes == 0


def half_flipped(x: Any) -> Any:
    return x.flip(-1) if random.random() < 0.5 else x


def tossed(x: Any) -> Any:
    return x.flip(-1) if torch.rand(1) < 0.5 else x


NET = frozen(convolutions())


@pytest.mark.parametrize(
    "features",
    [
        lambda x: NET(half_flipped(x)),
        lambda x: NET(tossed(x)),
        lambda x: NET(x.flip(-1) if torch.randint(0, 2, (1,)).item() else x),
        lambda x: NET(x + 0.1 * torch.randn_like(x)),
        lambda x: NET(x[torch.randperm(BATCH)]),
        lambda x: NET(0.7 * x + 0.3 * x.roll(1, 0)),
        lambda x: NET((x - x.mean(0)) / (x.std(0) + 1)),
        lambda x: NET(x - x.mean()),
        lambda x: NET(x / x.max().item()),
        lambda x: x.flatten(1)[:, :16] * 2,
    ],
    ids=["python", "branch", "item", "noise", "shuffled", "mixed", "per batch", "one mean", "a number", "no layer"],
)
def test_what_is_another_result_next_time(watch: Any, features: Net) -> None:
    assert named(watch(features)) == []


def test_a_network_that_is_not_at_rest(watch: Any) -> None:
    """Statistics that are learnt and dropout end it: only what comes before them is the same again."""
    assert named(watch(frozen(convolutions(), train=True))) == ["conv2d"]
    dropping = frozen(convolutions(0.5))
    dropping[3].train()
    assert named(watch(dropping)) == ["conv2d", "batch_norm", "relu_"]


def test_trained_weights_make_no_features(watch: Any) -> None:
    net = convolutions()
    assert named(watch(lambda x: x, nn.Sequential(net, nn.Linear(16, 5)))) == []


def test_a_mean_of_weights_is_written_in_each_step(watch: Any) -> None:
    net = frozen(convolutions())

    def averaged(x: Any) -> Any:
        for weight in net.parameters():
            weight.mul_(0.999)
        return net(x)

    assert named(watch(averaged)) == []


class Adapted(nn.Module):
    """A frozen layer with a trained one of low rank beside it."""

    def __init__(self, given: int) -> None:
        super().__init__()
        self.base = nn.Linear(given, 16).requires_grad_(False)
        self.down, self.up = nn.Linear(given, 2), nn.Linear(2, 16)

    def forward(self, x: Any) -> Any:
        return self.base(x) + self.up(self.down(x))


def test_adapters_inside_a_frozen_model(watch: Any) -> None:
    """Their layers see what trained weights made; the first one alone sees the samples, which its adapter reads too."""
    adapted = nn.Sequential(Adapted(3 * SIDE * SIDE), nn.ReLU(), Adapted(16), nn.Linear(16, 5))
    assert named(watch(lambda x: x.flatten(1), adapted)) == []


def test_weights_that_are_thawed_later(watch: Any) -> None:
    """They are looked at when a loader is asked anew; a fused optimizer leaves no version behind, but has them."""
    net = convolutions().eval()

    def unrecorded(x: Any) -> Any:
        with torch.no_grad():
            return net(x)

    run = watch(unrecorded)
    assert not features_of(run).frozen
    other = torch.optim.AdamW(nn.Linear(2, 2).parameters())
    run.observer.held.look([other])
    assert features_of(run).begun == 1
    run.observer.held.look([other, torch.optim.AdamW(net.parameters(), fused=True)])
    assert run.seen.features is None


def test_weights_that_are_written_later(watch: Any) -> None:
    net = frozen(convolutions())
    run = watch(net)
    run.observer.held.look([])
    assert features_of(run).frozen
    net[0].weight.mul_(0.5)
    run.observer.held.look([])
    assert run.seen.features is None


def test_weights_that_ask_for_gradients_later(watch: Any) -> None:
    """They rest, but are no longer frozen."""
    net = frozen(convolutions())
    run = watch(net)
    net.requires_grad_(True)
    run.observer.held.look([])
    assert not features_of(run).frozen


SCRIPT = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten()).requires_grad_(False)
head = nn.Linear(8 * 36, 3)
loader = DataLoader(TensorDataset(torch.rand(96, 3, 8, 8), torch.arange(96) % 3), batch_size=8, shuffle=True)
optimizer = torch.optim.AdamW(head.parameters(), fused=True)
for epoch in range(8):
    if epoch == THAWED:
        net.requires_grad_(True)
        optimizer.add_param_group({"params": list(net.parameters())})
    for pictures, labels in loader:
        loss = nn.functional.cross_entropy(head(net(pictures)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.complete
@pytest.mark.parametrize("thawed", [9, *complete(6)])
def test_a_script_from_its_begin_to_its_end(tmp_path: Path, thawed: int) -> None:
    """Eight epochs, with the network thawed in the seventh of them or never."""
    script = tmp_path / "frozen.py"
    script.write_text(SCRIPT.replace("THAWED", str(thawed)))
    rank = capture(tmp_path / "out", script).rank
    [loader] = rank["loaders"]
    assert (loader["iterators"], loader["random_samples"]) == (8, False)
    assert rank["dataflow"]["looks"] >= 1
    [record] = read(tmp_path / "out" / "run.json").ranks
    features = Computed(record=record).get(JudgedSteps).seen.features
    assert (features is None) is (thawed < 8)
    if features is not None:
        assert (features.samples, features.kept_bytes, features.frozen) == (8, 8 * 36 * 4, True)
        assert features.begun >= 1


CHOSEN = """
import torch
from torch import nn

torch.set_num_threads(1)
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten()).requires_grad_(False)
head = nn.Linear(8 * 36, 3)
pictures, labels = torch.rand(96, 3, 8, 8), torch.arange(96) % 3
optimizer = torch.optim.AdamW(head.parameters(), fused=True)
for step in range(1200):
    if step == LOADED:
        net.load_state_dict(net.state_dict())
    rows = torch.randperm(96)[:8]
    loss = nn.functional.cross_entropy(head(net(pictures[rows])), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.complete
@pytest.mark.parametrize("loaded", [-1, *complete(300)])
def test_a_script_that_chooses_rows_itself(tmp_path: Path, loaded: int) -> None:
    """Its tensors are looked at later; a network that gets other weights now and then makes no features."""
    script = tmp_path / "chosen.py"
    script.write_text(CHOSEN.replace("LOADED", str(loaded)))
    rank = capture(tmp_path / "out", script).rank
    assert rank["dataflow"]["looks"] >= 1
    [record] = read(tmp_path / "out" / "run.json").ranks
    features = Computed(record=record).get(JudgedSteps).seen.features
    assert (features is None) is (loaded > 0)
    if features is not None:
        assert (features.samples, features.chosen_of, features.frozen) == (8, 96, True)

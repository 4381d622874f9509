"""Changes that are made in a script's process: what they reach, what they say, and what they leave of the numbers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.gate.turns import EndedError, Runner, environment

pytestmark = pytest.mark.torch

# Everything in it that a treatment could reach: the calls that are left out, a loader, an optimizer, a model of images.
SCRIPT = """
import gc
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(3)
torch.autograd.set_detect_anomaly(True)
model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 5))
data = TensorDataset(torch.randn(160, 3, 16, 16), torch.randint(0, 5, (160,)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for images, labels in DataLoader(data, batch_size=4, shuffle=True):
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    gc.collect(0)
print(torch.is_anomaly_enabled(), torch.get_num_threads(), model[0].weight.is_contiguous())
"""
EXACT = (
    ("loader", {"num_workers": 1, "persistent_workers": True}),
    ("set_to_none", {}),
    ("calls", {"names": ["gc.collect", "torch.autograd.set_detect_anomaly"]}),
    ("gc", {"freeze": True}),
    ("ddp", {"static_graph": True}),
)
ROUNDED = (
    ("autocast", {"dtype": "bfloat16"}),
    ("channels_last", {}),
    ("optimizer", {"fused": True}),
    ("threads", {"count": 2}),
    ("matmul_precision", {"precision": "high"}),
    ("no_such", {}),
)


@pytest.fixture(autouse=True)
def _torch() -> None:
    pytest.importorskip("torch")


def run(folder: Path, *treatments: tuple[str, dict[str, Any]], script: str = SCRIPT) -> tuple[dict[str, Any], str]:
    """The facts that a script leaves which runs to its end, and its last line."""
    (folder / "train.py").write_text(script)
    wanted = [{"name": name, "arguments": arguments} for name, arguments in treatments]
    settings = {"treatments": wanted, "losses": 100}
    with Runner((sys.executable, "train.py"), folder, environment(), settings) as process:
        process.ready()
        process.turn(3)
        while_alive = process.facts()
        with pytest.raises(EndedError) as ended:
            process.turn(1000)
        assert ended.value.status == 0, ended.value.last
        after_the_end = process.facts()
    assert after_the_end["losses"][: len(while_alive["losses"])] == while_alive["losses"]
    assert len(while_alive["losses"]) >= 3
    return after_the_end, ended.value.last


def test_exact_changes_reach_their_places_and_leave_every_bit_of_the_losses(tmp_path: Path) -> None:
    base, said = run(tmp_path)
    changed, after = run(tmp_path, *EXACT)
    assert len(base["losses"]) == 40
    assert base["losses"] == changed["losses"]
    assert base["reached"] == []
    assert said == "True 1 True"
    assert after == "False 1 True"
    assert set(changed["reached"]) == {
        "DataLoader",
        "zero_grad(set_to_none=False) of AdamW",
        "calls of collect() do nothing",
        "calls of set_detect_anomaly() do nothing",
        "the garbage collector",
    }


@pytest.mark.complete
def test_changes_that_round_differently_are_seen_in_the_losses(tmp_path: Path) -> None:
    base, _ = run(tmp_path)
    changed, after = run(tmp_path, *ROUNDED)
    losses = [[float.fromhex(text) for text in one["losses"]] for one in (base, changed)]
    assert losses[0] != losses[1]
    assert losses[0][:3] == pytest.approx(losses[1][:3], rel=0.05)
    assert after == "True 2 False"
    assert "AdamW" in changed["reached"]
    assert "Sequential and what follows it up to the backward pass" in changed["reached"]
    assert changed["missed"] == ["there is no treatment no_such"]


# Its samples say how many threads a worker has; it sets a variable and a switch of its own.
OWN = """
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

os.environ["MINE"] = "2"

class Threads(Dataset):
    def __len__(self):
        return 160
    def __getitem__(self, index):
        return torch.ones(8), torch.get_num_threads()

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, threads in DataLoader(Threads(), 4, num_workers=1):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    print(threads[0].item(), torch.get_float32_matmul_precision())
"""


@pytest.mark.complete
def test_what_a_script_sets_itself_is_changed_or_named(tmp_path: Path) -> None:
    environment = ("environment", {"MINE": 1, "ABSENT": None})
    left, said = run(tmp_path, environment, ("threads", {"workers": 2}), script=OWN)
    assert said == "1 highest"
    assert left["reached"] == ["the variable ABSENT"]
    assert left["missed"] == [
        "a DataLoader whose workers are forked: add loader:multiprocessing_context=forkserver",
        "MINE, which the script sets itself",
    ]
    wanted = (
        ("threads", {"workers": 2}),
        ("loader", {"multiprocessing_context": "forkserver"}),
        ("matmul_precision", {"precision": "high"}),
    )
    left, said = run(tmp_path, *wanted, script=OWN)
    assert said == "2 high"
    assert "DataLoader: 2 threads in each worker" in left["reached"]


# The critic is frozen while the generator trains, and reads what the generator made before.
PLAYERS = """
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 8))
critic = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
makes, judges = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (generator, critic))
kinds = set()
critic[0].register_forward_hook(lambda module, given, made: kinds.add(made.dtype))
for step in range(20):
    critic.requires_grad_(False)
    loss = nn.functional.softplus(-critic(generator(torch.randn(16, 4)))).mean()
    makes.zero_grad()
    loss.backward()
    makes.step()
    critic.requires_grad_(True)
    kinds.clear()
    with torch.no_grad():
        made = generator(torch.randn(16, 4))
    loss = nn.functional.softplus(critic(made)).mean() + nn.functional.softplus(-critic(torch.randn(16, 8))).mean()
    judges.zero_grad()
    loss.backward()
    judges.step()
print(*kinds, made.dtype)
"""


@pytest.mark.complete
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_critic_reads_what_the_generator_made_in_lower_precision(tmp_path: Path, dtype: str) -> None:
    base, said = run(tmp_path, script=PLAYERS)
    changed, after = run(tmp_path, ("autocast", {"dtype": dtype}), script=PLAYERS)
    assert said == "torch.float32 torch.float32"
    assert after == f"torch.{dtype} torch.float32"
    losses = [[float.fromhex(text) for text in one["losses"]] for one in (base, changed)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    assert any("GradScaler" in text for text in changed["missed"]) is (dtype == "float16")


@pytest.mark.complete
def test_a_treatment_says_what_it_could_not_reach(tmp_path: Path) -> None:
    script = """
import torch
from torch import nn
torch.set_num_threads(1)
class Numbers(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(torch.randn(100, 8))
class Plain(torch.optim.SGD):
    pass
model = nn.Linear(8, 2)
model.compile(backend="eager")
optimizer = torch.optim.Rprop(model.parameters())
for x in torch.utils.data.DataLoader(Numbers(), batch_size=4):
    model(x).sum().backward()
    optimizer.step()
"""
    wanted = (("loader", {"num_workers": 2}), ("channels_last", {}), ("compile", {}), ("optimizer", {"fused": True}))
    left, _ = run(tmp_path, *wanted, script=script)
    assert left["reached"] == []
    assert set(left["missed"]) == {
        "a DataLoader of an iterable dataset: each added worker would repeat its samples",
        "Linear, which has no 2-D convolution",
        "Linear, which is already compiled",
        "Rprop, which has no fused update",
    }


@pytest.mark.complete
def test_other_seeds_give_other_losses_and_equal_ones_the_same(tmp_path: Path) -> None:
    seeds = [run(tmp_path, ("seeds", {"value": 0, "shift": shift}))[0]["losses"] for shift in (0, 0, 1)]
    assert seeds[0] == seeds[1]
    assert seeds[0] != seeds[2]


RANKS = """
import time
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
torch.manual_seed(0)
torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(8, 2), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(160, 8))
with open(f"rank{torch.distributed.get_rank()}.txt", "w") as file:
    print(model.find_unused_parameters, file=file)
for (x,) in torch.utils.data.DataLoader(data, batch_size=4):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
torch.distributed.destroy_process_group()
time.sleep(0.5)  # gloo's threads let go of tensors a moment later; an interpreter that ends before them aborts
"""


@pytest.mark.complete
def test_every_rank_is_treated(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RANKS)
    command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py")
    wanted = [{"name": "ddp", "arguments": {"find_unused_parameters": False}}]
    with Runner(command, tmp_path, environment(), {"treatments": wanted, "losses": 100}) as process:
        process.ready()
        process.turn(5)
        left = process.facts()
    assert left["reached"] == ["DistributedDataParallel"]
    assert len(left["losses"]) >= 5
    assert [(tmp_path / f"rank{rank}.txt").read_text() for rank in (0, 1)] == ["False\n", "False\n"]

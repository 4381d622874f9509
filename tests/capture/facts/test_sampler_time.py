"""What drawing the indices of a batch takes is told apart from reading its samples, with and without workers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from capture_runs import Captured, bare, capture
from tiers import complete

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

# A sleep lasts at least as long as it says: that is all that these tests say of times.
SCRIPT = """
import random, time, torch
from torch.utils.data import DataLoader, Sampler, WeightedRandomSampler
def pause():
    time.sleep(0.001)
    return random.choices(range(3), weights=[1, 2, 3])[0]
class Slow(Sampler):
    def __init__(self): pass
    def __len__(self): return 160
    def __iter__(self):
        for _ in range(160):
            yield pause()
class Batches:
    def __len__(self): return 40
    def __iter__(self):
        for at in range(40):
            time.sleep(0.004)
            yield [at, at + 1, at + 2, at + 3]
def batches():
    for at in range(40):
        time.sleep(0.004)
        yield [at, at + 1, at + 2, at + 3]
class Samples(torch.utils.data.Dataset):
    def __len__(self): return 160
    def __getitem__(self, index): return torch.ones(4) * index
class Odd(Sampler):
    def __getattr__(self, name): raise KeyError(name)
    def __init__(self): pass
    def __len__(self): return 160
    def __iter__(self): return iter(range(160))
if __name__ == "__main__":
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Samples(), LOADER)
    for batch in loader:
        optimizer.zero_grad()
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
    print(type(iter(loader)).__name__, sorted(name for name in vars(loader) if "advisor" in name))
"""
# At the script's lines: `def pause`, `class Slow`, its `__iter__`.
_PAUSE, _ITER = [4, 6], [10, 12]


def test_what_was_long_once_is_no_habit() -> None:
    from advisor.capture.inside.facts.data.sampler_time import as_record

    assert as_record([[5.0, 9_000.0, 5.0], [5.0, 5.0]]) == {"sampler_us": 5.0, "sampler_median_us": 5.0}
    assert as_record([[9_000.0, 5.0], [9_000.0, 5.0]]) == {"sampler_us": 3003.33, "sampler_median_us": 5.0}
    assert as_record([[7.0]]) == {"sampler_us": 7.0, "sampler_median_us": 7.0}
    assert as_record([[], []]) == {}


def test_an_iterator_that_is_dropped_after_one_batch_is_told_from_one_of_an_epoch() -> None:
    from advisor.capture.inside.facts.data.sampler_time import as_record

    # Making it, which draws nothing, then one draw that shuffles all; the longest of them is left out of the mean.
    anew = as_record([[1.0, 301.0], [1.0, 301.0], [1.0, 301.0]], 3)
    assert anew == {"sampler_us": 121.0, "sampler_median_us": 1.0, "batches_per_iterator": 1.0}
    assert as_record([[1.0, 5.0, 5.0, 5.0, 5.0], [5.0, 5.0]], 1)["batches_per_iterator"] == 6.0
    # One that was made before steps were timed tells nothing.
    assert "batches_per_iterator" not in as_record([[5.0, 5.0]])


ANEW = """
import torch
from torch.utils.data import DataLoader, TensorDataset
near = DataLoader(TensorDataset(torch.randn(160, 4)), batch_size=4, shuffle=True)
far = DataLoader(TensorDataset(torch.randn(4000, 4)), batch_size=4, shuffle=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (batch,) in near:
    (other,) = next(iter(far))
    optimizer.zero_grad()
    (model(batch) - model(other)).square().sum().backward()
    optimizer.step()
"""


@pytest.mark.complete
def test_two_loaders_of_which_one_is_begun_anew_in_each_step(tmp_path: Path) -> None:
    script = tmp_path / "anew.py"
    script.write_text(ANEW)
    done = capture(tmp_path / "out", script)
    assert done.status == 0
    found = {one["dataset_size"]: one for one in done.rank["loaders"]}
    assert found[4000]["batches_per_iterator"] == 1.0
    # That of the only epoch was made before any step was timed.
    assert "batches_per_iterator" not in found[160]
    assert found[4000]["sampler_us"] > found[160]["sampler_us"]


def captured(folder: Path, loader: str) -> Captured:
    script = folder / "drawing.py"
    script.write_text(SCRIPT.replace("LOADER", loader))
    done = capture(folder / "out", script)
    assert done.status == 0
    assert not done.rank["notes"]
    assert done.out == bare(sys.executable, str(script), cwd=folder).out.decode() != ""
    return done


@pytest.mark.complete
@pytest.mark.parametrize("workers", [0, *complete(2)])
@pytest.mark.parametrize(
    ("loader", "name"),
    [
        ("batch_size=4, sampler=Slow()", "Slow"),
        *complete(("batch_sampler=Batches()", "Batches")),
    ],
)
def test_a_sampler_that_takes_its_time(tmp_path: Path, loader: str, name: str, workers: int) -> None:
    [facts] = captured(tmp_path, f"{loader}, num_workers={workers}").rank["loaders"]
    assert facts["sampler"] == name
    assert facts["sampler_us"] >= 4000
    assert facts["sampler_median_us"] >= 4000
    assert facts["sampler_file"].endswith("drawing.py")
    if name == "Slow":
        assert facts["sampler_lines"] == [_PAUSE, _ITER]
        assert facts["sampler_weighted"] == [6]
    else:
        assert facts["sampler_weighted"] == []
    if not workers:
        # What is drawn is no part of what is read.
        assert facts["sample_us"] * 4 < facts["sampler_us"]


@pytest.mark.complete
def test_a_generator_in_place_of_a_sampler(tmp_path: Path) -> None:
    [facts] = captured(tmp_path, "batch_sampler=batches()").rank["loaders"]
    assert facts["sampler"] == "generator"
    assert facts["sampler_us"] >= 4000
    assert len(facts["sampler_lines"]) == 1


@pytest.mark.complete
@pytest.mark.parametrize(
    ("loader", "name"),
    [
        ("batch_size=4, shuffle=True", "RandomSampler"),
        ("batch_size=4, sampler=WeightedRandomSampler([1.0] * 160, 160)", "WeightedRandomSampler"),
    ],
)
def test_samplers_of_torch_have_no_lines(tmp_path: Path, loader: str, name: str) -> None:
    [facts] = captured(tmp_path, loader).rank["loaders"]
    assert facts["sampler"] == name
    assert facts["sampler_us"] > 0
    assert facts["sampler_file"] == ""
    assert facts["sampler_lines"] == []


@pytest.mark.complete
def test_a_sampler_whose_attributes_raise_is_left_alone(tmp_path: Path) -> None:
    [facts] = captured(tmp_path, "batch_size=4, sampler=Odd()").rank["loaders"]
    assert facts["num_workers"] == 0

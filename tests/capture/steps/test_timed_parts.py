"""The parts of un-profiled and profiled steps: fetch, backward, optimizer, the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recorder import Recorder

from advisor.capture.inside.steps import parts, phases, plan


class Clock:
    """A clock that is set by hand, in place of perf_counter_ns."""

    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    by_hand = Clock()
    monkeypatch.setattr(parts, "perf_counter_ns", by_hand)
    return by_hand


# Letters: F f a fetch begins, ends; B b backward; O o optimizer; each takes 1 ns, a digit that many.
_PARTS = {"F": parts.FETCH, "B": parts.BACKWARD, "O": parts.OPTIMIZER}


def told(clock: Clock, events: str) -> parts.Cut:
    seen = parts.Parts()
    for event in events:
        if event.isdigit():
            clock.now_ns += int(event)
        elif event.isupper():
            seen.begin(_PARTS[event])
        else:
            seen.end()
    return seen.cut()


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ("F3f1B4b1O2o", (3, 4, 2)),
        ("F3f1F2f5", (5, 0, 0)),
        ("O1B4b1o", (0, 0, 6)),  # a closure's backward belongs to the step that calls it
        ("B1O2o1b", (0, 4, 0)),  # a step in a gradient's hook to the backward
        ("B1B2b3b", (0, 6, 0)),  # a pass inside a pass
        ("F9F2f", (2, 0, 0)),  # the loader had no batch left, and the next one was asked
        ("F2f1B4", None),  # cut off
        ("f3F2f", (2, 0, 0)),  # an end without a beginning
        ("", (0, 0, 0)),
    ],
)
def test_parts_by_events(clock: Clock, events: str, expected: parts.Cut) -> None:
    assert told(clock, events) == expected


def test_a_cut_begins_anew(clock: Clock) -> None:
    seen = parts.Parts()
    seen.begin(parts.BACKWARD)
    assert seen.cut() is None
    clock.now_ns += 5
    seen.end()
    assert seen.cut() == (0, 0, 0)


def test_the_four_sum_to_the_step_and_what_was_cut_off_is_left_out() -> None:
    steps = [(10_000.0, (1_000, 2_000, 3_000)), (9_000.0, None), (8_000.0, (0, 500, 500))]
    record = parts.as_record(steps)
    assert record == {"fetch": [1.0, 0.0], "backward": [2.0, 0.5], "optimizer": [3.0, 0.5], "rest": [4.0, 7.0]}
    assert parts.as_record([(9_000.0, None)]) == {}


SCRIPT = """
import json, time
import torch
torch.set_num_threads(1)
from torch.utils.data import DataLoader, Dataset
model = torch.nn.Linear(8, 1)
spent = {"fetch": [], "backward": [], "optimizer": []}

def timed(part, seconds):
    begun = time.perf_counter()
    time.sleep(seconds)
    spent[part].append(time.perf_counter() - begun)

class Slow(Dataset):
    def __len__(self):
        return 60
    def __getitem__(self, index):
        timed("fetch", 0.004)
        return torch.ones(8)

class Wait(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1
    @staticmethod
    def backward(ctx, gradient):
        timed("backward", 0.006)
        return gradient

class Waits(torch.optim.SGD):
    def step(self, closure=None):
        timed("optimizer", 0.002)
        return super().step(closure)

optimizer = Waits(model.parameters(), lr=0.1)
for batch in DataLoader(Slow(), batch_size=1):
    optimizer.zero_grad()
    Wait.apply(model(batch)).sum().backward()
    optimizer.step()
    time.sleep(0.008)
print(json.dumps(spent))
"""


@pytest.mark.torch
def test_parts_agree_with_the_scripts_own_clock(tmp_path: Path) -> None:
    """The script times its own sleeps in each part. A busy machine makes single steps longer and none shorter."""
    pytest.importorskip("torch")
    from capture_runs import capture

    script = tmp_path / "parts.py"
    script.write_text(SCRIPT)
    done = capture(tmp_path / "out", script)
    assert done.status == 0, done.err
    own = {part: min(times) * 1e6 for part, times in json.loads(done.out).items()}
    steps = done.rank["steps"]
    for kind, whole in (("unprofiled_parts_us", "unprofiled_us"), ("profiled_parts_us", "profiled_us")):
        seen = steps[kind]
        assert set(seen) == set(parts.NAMES)
        assert {len(times) for times in seen.values()} == {len(steps[whole])}
        for part, us in own.items():
            assert us <= min(seen[part]) + 1.0, part
        sums = [sum(row) for row in zip(*seen.values(), strict=True)]
        assert sums == pytest.approx(steps[whole], abs=1.0)
    least = {part: min(times) for part, times in steps["unprofiled_parts_us"].items()}
    assert sorted(least, key=least.__getitem__) == ["optimizer", "fetch", "backward", "rest"]


def test_phases_keep_the_parts_of_clean_steps_only() -> None:
    given = iter([(number, 0, 0) for number in range(1, 100)])
    machine = phases.Phases(Recorder(), plan.Plan(warmup=1, timing=3, steps=2, lines=False), lambda: next(given))
    for number in range(12):
        machine.boundary(number * 1000, True, number != 2, number)
    lengths = [length for length, _ in machine.unprofiled_parts]
    assert lengths == [end - start for start, end in [*machine.before, *machine.after]]
    assert len(machine.profiled_parts) == len(machine.profiled) == 2
    assert 2 not in [parts_[0] for _, parts_ in machine.unprofiled_parts if parts_]

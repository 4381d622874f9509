"""What is told apart by training loop: fetch times, loaders and optimizers."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from advisor.capture.inside.collector import Collector  # noqa: E402
from advisor.capture.inside.facts.data.workers import Board  # noqa: E402
from advisor.capture.inside.facts.process_facts import Facts  # noqa: E402
from advisor.capture.inside.loop_facts import LoopFacts, Seen  # noqa: E402
from advisor.capture.inside.steps.tracker import Tracker  # noqa: E402
from advisor.capture.inside.steps.vitals import Vitals  # noqa: E402


def test_fetch_times_are_of_the_loop_that_runs_however_many_came_before() -> None:
    board = Board()
    board.prepare()
    for earlier in (3, 300):
        for _ in range(earlier):
            board._write(1.0, 2.0, -1.0)
        board.begin_again()
        assert board.read() == []
        for _ in range(2):
            board._write(7.0, 8.0, -1.0)
        assert board.read() == [(7.0, 8.0)] * 2
    for _ in range(1000):
        board._write(9.0, 9.0, -1.0)
    assert set(board.read()) == {(9.0, 9.0)}, "of many, the latest"


class Process:
    """Loaders and optimizers of a script, as the hooks see them."""

    def __init__(self) -> None:
        self.collector, self.tracker, self.serial = Collector(), Tracker(lambda *_: None), 0
        self.facts = Facts(self.collector, self.tracker)

    def iterator(self, batch_size: int) -> int:
        iterator: Any = iter(DataLoader(TensorDataset(torch.zeros(64, 2)), batch_size=batch_size))
        self.serial += 1
        iterator._advisor = self.serial
        self.collector.loader(iterator)
        return self.serial

    def batches(self, serial: int, count: int, trained: bool = True) -> None:
        for _ in range(count):
            self.tracker.asked(serial)
            self.tracker.given(serial)
            if trained:
                self.tracker.backward()

    def loop(self, before: Seen | None = None) -> LoopFacts:
        return LoopFacts(self.collector, self.tracker, self.facts, Vitals(()), before)


def sizes(found: dict[str, Any]) -> list[list[int]]:
    return [[one["batch_size"] for one in found[kind]] for kind in ("loaders", "evaluation_loaders")]


def test_a_loader_is_of_the_loops_that_train_on_it() -> None:
    process = Process()
    first = process.loop()
    process.batches(process.iterator(8), 10)
    process.batches(process.iterator(16), 3, trained=False)
    until = Seen(process.tracker, process.collector)
    train = process.iterator(32)
    process.batches(train, 1)
    first.leave(until)
    second = process.loop(until)
    process.batches(train, 9)
    process.batches(process.iterator(64), 2, trained=False)
    assert sizes(first.gathered()) == [[8], [16]]
    assert sizes(second.gathered()) == [[32], [64]]


def test_one_loader_for_both_loops_is_of_both() -> None:
    process = Process()
    first, both = process.loop(), process.iterator(8)
    process.batches(both, 10)
    until = Seen(process.tracker, process.collector)
    first.leave(until)
    second = process.loop(until)
    process.batches(both, 5)
    assert sizes(first.gathered()) == sizes(second.gathered()) == [[8], []]


def test_an_optimizer_is_of_the_loop_in_which_it_steps() -> None:
    collector, weight = Collector(), torch.nn.Parameter(torch.zeros(2))
    one, other = torch.optim.SGD([weight]), torch.optim.Adam([weight])
    collector.optimizer(one)
    collector.optimizer(other)
    collector.begin_again({id(one)})
    assert collector.alive_optimizers() == [other]
    assert collector.all_optimizers() == [other, one]
    collector.optimizer(one)
    assert collector.alive_optimizers() == [other, one]
    assert collector.all_optimizers() == [other, one], "each once"


def test_an_optimizer_that_replaces_another_one_has_its_key() -> None:
    collector, weight, head = Collector(), torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))
    kept = torch.optim.SGD([head])
    keys = {collector.optimizer(torch.optim.Adam([weight])) for _ in range(5)}
    own = collector.optimizer(kept)
    assert len(keys) == 1
    assert own not in keys
    both = torch.optim.Adam([weight]), torch.optim.SGD([weight])
    assert len({collector.optimizer(one) for one in both}) == 2, "two that are alive"
    assert collector.alive_optimizers() == [both[0], kept, both[1]]
    assert not collector.notes(5), "five steps tell nothing"


def test_optimizers_that_most_steps_make_are_noted() -> None:
    collector, weight = Collector(), torch.nn.Parameter(torch.zeros(2))
    for _ in range(30):
        collector.optimizer(torch.optim.Adam([weight]))
    assert not collector.notes(300), "one for each of thirty rounds"
    [note] = collector.notes(30)
    assert "29 times in 30 steps" in note

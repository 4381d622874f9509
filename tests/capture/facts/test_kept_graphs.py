"""Losses kept with their graphs: of which steps, in which variable, and what their graphs hold."""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from capture_runs import Captured, capture
from tiers import complete

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from advisor.capture.inside.facts import probe  # noqa: E402
from advisor.capture.inside.facts.model import kept_graphs, model_facts, saved_tensor_bytes, variable_holders  # noqa: E402
from advisor.capture.inside.facts.process_facts import Facts  # noqa: E402

HERE = Path(__file__).name
NET = torch.nn.Linear(64, 64)
LARGE = 64 * 64 * 4  # bytes of what `term` saves: x is shared by all steps, the layer's result is each one's own
TELLS = saved_tensor_bytes.tells()  # an older torch does not say what nodes have saved
X = torch.randn(64, 64)


def term() -> Any:
    return NET(X).exp().sum()  # exp saves its result


def steps(keep: Any, number: int = 14, backward: bool = False) -> list[int | None]:
    """Some steps, each of which gives its loss away; autograd's number at each of their ends."""
    marks = [kept_graphs.number()]
    for _ in range(number):
        loss = term()
        if backward:
            loss.backward()
        keep(loss)
        marks.append(kept_graphs.number())
    return marks


class Meter:
    """A meter whose every attribute that is no plain one tells when it is asked."""

    asked: ClassVar[list[str]] = []

    def __init__(self) -> None:
        self.values: dict[str, list[Any]] = defaultdict(list)
        self.sum: Any = 0.0

    def update(self, **values: Any) -> None:
        for name, value in values.items():
            self.values[name].append(value)

    def add(self, value: Any) -> None:
        self.sum += value

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        raise AttributeError(name)

    @property
    def mean(self) -> Any:
        self.asked.append("mean")
        return 0.0


class Slotted:
    __slots__ = ("seen", "unset")

    def __init__(self) -> None:
        self.seen: deque[Any] = deque()

    def take(self, value: Any) -> None:
        self.seen.append(value)


class Loud(list):  # type: ignore[type-arg]
    """A list that tells when it is gone through."""

    def __iter__(self) -> Any:
        Meter.asked.append("iter")
        return super().__iter__()

    def __len__(self) -> int:
        Meter.asked.append("len")
        return super().__len__()


@dataclass
class Trainer:
    meters: dict[str, Meter] = field(default_factory=lambda: {"loss": Meter(), "other": Meter()})
    history: Any = field(default_factory=Loud)


@pytest.fixture(autouse=True)
def _only_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses that other tests of this process left alive, in a cycle or a failed frame, are not asked for."""
    others = {id(one): one for one in model_facts.scalars()}
    scalars = model_facts.scalars
    monkeypatch.setattr(model_facts, "scalars", lambda: [one for one in scalars() if id(one) not in others])


def looked(marks: Any) -> dict[str, Any] | None:
    """What capture says; a frame of this file is the script's."""
    Meter.asked.clear()
    found = kept_graphs.kept(model_facts.scalars(), marks, 14)
    assert not Meter.asked
    return found


def line(text: str) -> int:
    lines = Path(__file__).read_text("utf-8").splitlines()
    return next(number for number, one in enumerate(lines, 1) if one.strip() == text)


def test_a_meter_of_several_terms_is_named_with_the_line_of_its_class() -> None:
    meter = Meter()
    marks = steps(lambda loss: meter.update(loss=loss, half=loss / 2))
    found = looked(marks)
    assert found is not None
    assert (found["name"], found["function"], found["summed"]) == ("meter.values", "update", False)
    assert (Path(found["file"]).name, found["line"]) == (HERE, line("self.values[name].append(value)"))
    assert (found["steps"], found["losses"], found["of_steps"]) == (13, 26, 14)  # the last step's are its own
    # A quotient saves its numbers.
    assert LARGE <= found["held_bytes"] < LARGE + 100 if TELLS else found["held_bytes"] is None


def test_a_sum_in_a_dictionary_of_meters_of_an_object() -> None:
    trainer = Trainer()
    found = looked(steps(trainer.meters["loss"].add))
    assert found is not None
    assert (found["name"], found["function"], found["summed"]) == ("trainer.meters['loss'].sum", "add", True)
    assert found["line"] == line("self.sum += value")
    assert found["steps"] == 13
    assert found["held_bytes"] == (LARGE if TELLS else None)


def test_slots_and_lists_of_a_kind_of_their_own() -> None:
    slotted = Slotted()
    found = looked(steps(slotted.take))
    assert found is not None
    assert (found["name"], found["line"]) == ("slotted.seen", line("self.seen.append(value)"))
    del slotted
    trainer = Trainer()
    found = looked(steps(lambda loss: trainer.history.append({"loss": loss})))
    assert found is not None
    assert found["name"] == "trainer.history"


def test_what_a_backward_pass_has_emptied_holds_nothing() -> None:
    meter = Meter()
    found = looked(steps(lambda loss: meter.update(loss=loss), backward=True))
    assert found is not None
    assert (found["name"], found["held_bytes"]) == ("meter.values['loss']", 0 if TELLS else None)


@pytest.mark.parametrize(
    "keep",
    [
        lambda meter, loss: meter.update(loss=loss.item()),
        lambda meter, loss: meter.add(loss.detach()),
        lambda meter, loss: setattr(meter, "sum", 0.9 * meter.sum + 0.1 * loss.detach()),
        lambda meter, loss: setattr(meter, "sum", loss),
    ],
    ids=["numbers", "detached", "detached average", "the last one"],
)
def test_meters_without_graphs_are_no_find(keep: Any) -> None:
    meter = Meter()
    assert looked(steps(lambda loss: keep(meter, loss))) is None


def test_the_last_few_losses_and_those_of_one_step_are_no_find() -> None:
    few: deque[Any] = deque(maxlen=8)
    assert looked(steps(few.append)) is None
    few.clear()
    one: list[Any] = []
    marks = [*steps(one.append), kept_graphs.number(), kept_graphs.number()]
    whole = [marks[0], marks[-2], marks[-1]]  # all of them in one step
    assert looked(whole) is None


def test_the_search_goes_so_far_and_no_further() -> None:
    losses = [term() for _ in range(12)]
    wanted = set(map(id, losses))
    deep: Any = losses
    for _ in range(6):
        deep = [deep]
    module, kind = sys, Meter
    module.kept = kind.kept = losses  # type: ignore[attr-defined]
    try:
        del losses
        found = variable_holders.holder(sys._getframe(), wanted, 7)
    finally:
        del module.kept, kind.kept  # type: ignore[attr-defined]
    assert found.get("name") not in ("deep", "module.kept", "kind.kept")
    again = [deep[0][0][0][0][0][0], deep]
    again.append(again)
    assert variable_holders.holder(sys._getframe(), wanted, 7)["name"] == "again"


def test_saved_tensors_are_not_unpacked() -> None:
    asked = []

    def unpack(one: Any) -> Any:
        asked.append(one)
        return one

    kept = []
    marks = [kept_graphs.number()]
    for _ in range(3):
        with torch.autograd.graph.saved_tensors_hooks(lambda one: one, unpack):
            kept.append(term())
        marks.append(kept_graphs.number())
    roots = {number + 1: [one.grad_fn] for number, one in enumerate(kept)}
    assert saved_tensor_bytes.held_bytes(roots, marks) == (LARGE if TELLS else None)  # type: ignore[arg-type]
    assert not asked


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"steps": 23, "name": "meter.sum"}, {"steps": 38}, 23),
        ({"steps": 23, "name": "meter.sum"}, {"steps": 38, "name": "meter.sum"}, 38),
        ({"steps": 23}, {"steps": 38}, 38),
        ({"steps": 23}, None, 23),
    ],
)
def test_the_look_that_found_the_variable_goes_first(
    before: dict[str, Any], after: dict[str, Any] | None, said: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an epoch dropped may live on in a cycle that nobody has collected yet: more steps, in no variable."""
    looks = iter([before, after])
    monkeypatch.setattr(Facts, "_kept", lambda *_: next(looks))
    monkeypatch.setattr(probe, "look", lambda *_: {"settings": {}})
    collector = SimpleNamespace(alive_optimizers=dict)
    facts = Facts(collector, SimpleNamespace(backwards=0))  # type: ignore[arg-type]
    facts.window_opens()
    facts.look()
    assert facts.known["kept_graphs"]["steps"] == said


SCRIPT = """import torch
torch.set_num_threads(1)
class AverageMeter:
    def __init__(self):
        self.reset()
    def reset(self):
        self.sum, self.count = 0.0, 0
    def update(self, value, n=1):
        self.sum += value * n
        self.count += n
    @property
    def avg(self):
        print("asked")
        return self.sum / self.count
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
def epoch():
    meter = AverageMeter()
    for _ in range(EPOCH):
        out = model(torch.randn(512, 64))
        optimizer.zero_grad()
        out.square().mean().backward()
        optimizer.step()
        meter.update(WHAT)
    return meter
for number in range(3):
    epoch()
"""


@pytest.mark.complete
@pytest.mark.parametrize(
    ("what", "found"),
    [("model(torch.randn(512, 64)).abs().mean(), 512", True), *complete(("out.detach().abs().mean()", False))],
    ids=["with graphs", "detached"],
)
def test_a_meter_of_one_epoch_of_a_real_script(what: str, found: bool, tmp_path: Path) -> None:
    """The window closes in another epoch than the one whose terms were kept before it."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("WHAT", what).replace("EPOCH", "40"))
    done: Captured = capture(tmp_path / "out", script)
    assert (done.status, done.out) == (0, ""), done.err
    kept = done.rank["kept_graphs"]
    assert (kept is not None) == found
    if kept is not None:
        assert (kept["name"], kept["function"], kept["summed"]) == ("meter.sum", "update", True)
        assert kept["line"] == SCRIPT.splitlines().index("        self.sum += value * n") + 1
        assert 10 <= kept["steps"] <= 40
        assert kept["held_bytes"] >= 512 * 256 * 4 if TELLS else kept["held_bytes"] is None

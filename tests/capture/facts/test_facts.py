"""What run.json tells beside the trace, on real scripts: choices, warnings, modules, sharding, compilation, clocks."""

from __future__ import annotations

import importlib
import json
import types
from pathlib import Path
from typing import Any

import pytest
from capture_runs import FOLLOWS_HOOKED_STEPS, SCRIPTS, Captured, bare, capture, fully_shards_on_cpus
from tiers import complete

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCRIPT = """import sys, traceback, warnings
import torch
torch.set_num_threads(1)
for word in sys.argv[1:]:
    exec(word)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU())
        self.head = torch.nn.Linear(8, 4)
    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))
model = Net()
optimizer = torch.optim.AdamW(model.parameters())
for number in range(60):
    optimizer.zero_grad()
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    warnings.warn(f"again {number % 20} https://me:password@host/x", RuntimeWarning)
print("trained", type(torch._C), "module" in repr(torch._C))
"""


def run(tmp_path: Path, *words: str, **options: Any) -> Captured:
    tmp_path.mkdir(exist_ok=True)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = capture(tmp_path / "out", script, *words, **options)
    assert done.status == 0, done.err
    assert done.out.endswith("trained <class 'module'> True\n"), done.out
    return done


@pytest.mark.complete
def test_the_default_precision_was_chosen_or_not(tmp_path: Path) -> None:
    """A switch set to the value that it had is a choice; a script that touches none has chosen nothing."""
    words = ("", "torch.set_float32_matmul_precision('highest')", "torch.backends.cuda.matmul.allow_tf32 = False")
    found = [run(tmp_path / str(number), word).rank["settings"] for number, word in enumerate(words)]
    assert [one["matmul_precision_set"] for one in found] == [False, True, True]
    assert {one["matmul_precision"] for one in found} == {"highest"}


@pytest.mark.complete
def test_a_mistake_in_the_choice_looks_as_bare(tmp_path: Path) -> None:
    """No frame of ours in the traceback, and asking is no choosing."""
    script = tmp_path / "wrong.py"
    script.write_text(
        "import traceback, torch\ntorch.get_float32_matmul_precision()\n"
        "try:\n    torch.set_float32_matmul_precision(3)\nexcept Exception:\n    traceback.print_exc()\n"
    )
    import sys

    plain = bare(sys.executable, str(script), cwd=tmp_path)
    done = capture(tmp_path / "out", script)
    assert "RuntimeError" in done.err
    assert done.err == plain.err.decode()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    return run(tmp_path_factory.mktemp("facts"), "torch.backends.cudnn.benchmark = True")


@pytest.mark.complete
def test_the_first_warnings_are_kept_once_and_without_secrets(plain: Captured) -> None:
    kept = plain.rank["warnings"]
    assert kept == [f"train.py:19: RuntimeWarning: again {number} https://***@host/x" for number in range(10)]
    assert plain.err.count("me:password@host/x\n") == 20, "the script's own output is as it was"


def test_switches_of_the_probe(plain: Captured) -> None:
    settings = plain.rank["settings"]
    assert (settings["cudnn_benchmark"], settings["cudnn_deterministic"]) == (True, False)
    assert (settings["threads"], settings["default_dtype"], settings["autocast"]) == (1, "float32", False)
    assert plain.rank["optimizers"][0]["name"] == "AdamW"


DRAWING = """import random, sys, numpy, torch
torch.set_num_threads(1)
random.seed(3)
numpy.random.seed(3)
torch.manual_seed(3)
class Transform:
    numbers = numpy.random.RandomState(5)
    def __call__(self, sample):
        return sample + self.numbers.rand()
own, unused, transform = numpy.random.default_rng(3), random.Random(2), Transform()
def anew():
    return numpy.random.default_rng().random()
class Samples(torch.utils.data.Dataset):
    def __init__(self):
        self.table = numpy.random.default_rng(1).random(4)
    def __len__(self):
        return 240
    def __getitem__(self, index):
        DRAW
        return torch.ones(4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.utils.data.DataLoader(Samples(), batch_size=4, shuffle=True):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
print(random.random(), numpy.random.rand(), own.random(), unused.random(), torch.rand(1).item(), transform(0))
"""


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        ("random.random()", True),
        *complete(
            ("self.table.sum()", False), ("numpy.random.rand()", True), ("own.random()", True), ("transform(0)", True)
        ),
        *complete(("torch.rand(1)", True), ("anew()", True)),
    ],
)
def test_samples_that_random_numbers_make_anew(tmp_path: Path, draw: str, expected: bool) -> None:
    """They are known, whoever's generator drew them, and looking at the generators moves none of them."""
    import sys

    script = tmp_path / "drawing.py"
    script.write_text(DRAWING.replace("DRAW", draw))
    plain = bare(sys.executable, str(script), cwd=tmp_path)
    done = capture(tmp_path / "out", script)
    assert done.out == plain.out.decode() != ""
    [loader] = done.rank["loaders"]
    assert loader["random_samples"] is expected
    assert loader["sample_us"] > 0


VALIDATES_BY_ONE_BATCH = """import torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
def samples(count):
    return TensorDataset(torch.randn(count, 8), torch.randn(count, 1))
loader = DataLoader(samples(400), batch_size=4, shuffle=True)
FIRST
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for x, y in loader:
    optimizer.zero_grad()
    (model(x) - y).square().mean().backward()
    optimizer.step()
"""
_HELD_OUT = "held_out = next(iter(DataLoader(samples(32), 32)))"


@pytest.mark.complete
@pytest.mark.parametrize("first", ["", _HELD_OUT])
def test_a_loader_that_is_read_once_before_the_training_is_not_its_loader(tmp_path: Path, first: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(VALIDATES_BY_ONE_BATCH.replace("FIRST", first))
    rank = capture(tmp_path / "out", script).rank
    (loader,) = rank["loaders"]
    assert (loader["batch_size"], loader["dataset_size"]) == (4, 400)
    assert loader["sample_us"] > 0
    assert loader["random_samples"] is False
    assert [one["batch_size"] for one in rank["evaluation_loaders"]] == [32] * bool(first)


def test_partners_of_a_zip_are_both_loaders_of_the_training() -> None:
    from advisor.capture.inside.collector import Collector

    collector = Collector()
    collector.loaders = [{"facts": {"name": name}, "serials": {at}} for at, name in enumerate(("a", "b", "held out"))]

    def of(*times: tuple[int, int]) -> list[str]:
        fed, beside = ({at: one[number] for at, one in enumerate(times) if one[number]} for number in (0, 1))
        return [one["facts"]["name"] for one in collector._feeding(fed, beside)]

    assert of((0, 40), (40, 0), (0, 1)) == ["a", "b"]
    assert of((0, 40), (40, 0), (0, 3)) == ["a", "b"]  # a batch of it before each epoch
    assert of((40, 0), (1, 0), (0, 0)) == ["a", "b"]  # an epoch of one batch in a loop of its own
    assert of((40, 0), (0, 0), (0, 1)) == ["a"]
    assert of((0, 0), (0, 0), (1, 0)) == ["held out"]  # one batch that all steps train on
    assert of((0, 1), (1, 0), (0, 0)) == ["a", "b"]


def test_parameters_by_module(plain: Captured) -> None:
    model = plain.rank["model"]
    rows = {row["path"]: (row["kind"], row["parameters"]) for row in model["modules"]}
    convolution, head = 3 * 8 * 9 + 8, 8 * 4 + 4
    assert rows == {
        "Net": ("Net", convolution + head),
        "features": ("Sequential", convolution),
        "features.0": ("Conv2d", convolution),
        "features.1": ("ReLU", 0),
        "head": ("Linear", head),
    }
    assert model["parameters"] == convolution + head


def test_ops_lie_in_the_module_that_called_them(plain: Captured) -> None:
    """The forward of each module is a range of the lines trace, nested as the modules are."""
    rows = plain.events("lines")
    ranges = [row for row in rows if row["name"].startswith("advisor:module|")]
    paths = ["Net", "features", "features.0", "features.1", "head"]
    # Two steps are recorded where they seem to be of two kinds: on a busy machine they do.
    steps = sum(row["name"].startswith("ProfilerStep#") for row in rows)
    assert [row["name"].split("|")[1] for row in ranges] == paths * steps

    def module_of(op: str) -> str:
        row, *_ = [row for row in rows if row["name"] == op and row["cat"] == "cpu_op"]
        around = [one for one in ranges if one["ts"] <= row["ts"] and row["ts"] + row["dur"] <= one["ts"] + one["dur"]]
        return min(around, key=lambda one: one["dur"])["name"]

    assert module_of("aten::conv2d") == "advisor:module|features.0|Conv2d"
    assert module_of("aten::relu") == "advisor:module|features.1|ReLU"
    assert module_of("aten::mean") == "advisor:module|Net|Net"
    assert module_of("aten::linear") == "advisor:module|head|Linear"


def test_work_by_module(plain: Captured) -> None:
    """Forward and backward of both layers, by hand. Here a step begins with the backward of the forward before it."""
    from advisor.report.module_work import add_flops

    record = json.loads(json.dumps(plain.record))
    add_flops(plain.folder, record)
    found = {row["path"]: row["flops"] for row in record["ranks"][0]["model"]["modules"]}
    batch, places = 2, 6 * 6
    # Output by 8 channels of 3 x 3 x 3: forward, and gradients of input and weight.
    convolution = 3 * 2 * batch * 8 * places * (3 * 9)
    head = 3 * 2 * batch * 8 * 4
    assert found == {
        "Net": convolution + head,
        "features": convolution,
        "features.0": convolution,
        "features.1": 0,
        "head": head,
    }


@pytest.mark.complete
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("wrapper", {"kind": "FSDP", "units": 1, "use_orig_params": True, "forward_prefetch": True}),
        pytest.param(
            "fully",
            {"kind": "FSDP2", "units": 2, "param_dtype": "bfloat16", "reshard_after_forward": False},
            marks=fully_shards_on_cpus(torch),
        ),
    ],
)
def test_arguments_of_sharding(tmp_path: Path, how: str, expected: dict[str, Any]) -> None:
    if not hasattr(importlib.import_module("torch.distributed.fsdp"), "fully_shard"):
        pytest.skip("this torch shards on accelerators alone")
    done = capture(tmp_path / "out", SCRIPTS / "sharded.py", how, tmp_path / "store")
    assert (done.status, done.out) == (0, "trained\n"), done.err
    found = done.rank["settings"]["fsdp"]
    assert {key: found[key] for key in expected} == expected
    assert done.rank["notes"] == []


@FOLLOWS_HOOKED_STEPS
@pytest.mark.parametrize("words", complete((("loader",),), ((),)))
def test_an_optimizer_inside_compiled_code_is_said(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Its steps cannot be counted: a note says so. A loader tells the steps apart, else time does."""
    # Time windows open after 1, 2.5 and 5 s: the first two may see nothing but the compiler.
    done = capture(tmp_path / "out", SCRIPTS / "whole_step.py", *words)
    assert (done.status, done.out) == (0, "trained\n"), done.err
    assert [note for note in done.rank["notes"] if "inside a compiled function" in note]
    assert done.rank["optimizers"][0]["name"] == "SGD"
    steps = done.rank["steps"]
    assert steps["optimizer_steps"] == 0
    assert (steps["source"], steps["count"]) == (("loader", 80) if words else ("window", 0))
    assert any(file["role"] == "profile" for file in done.rank["files"])


class FakeDevice:
    """A device module whose events fail, as that of a device without them."""

    def __init__(self, synchronises: bool) -> None:
        self.synchronised = 0
        self.synchronises = synchronises

    def Event(self, **_options: Any) -> Any:  # noqa: N802 - torch's name
        raise RuntimeError("no events here")

    def synchronize(self) -> None:
        if not self.synchronises:
            raise NotImplementedError
        self.synchronised += 1


def clock_of(monkeypatch: pytest.MonkeyPatch, device: Any) -> Any:
    from advisor.capture.inside.steps import clock

    monkeypatch.setattr(torch, "strange", device, raising=False)
    return clock.Clock(lambda: "strange")


def test_a_device_without_events_is_synchronised_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the mean is known then; with an unclean step in between not even that."""
    device = FakeDevice(synchronises=True)
    clock = clock_of(monkeypatch, device)
    assert [clock.mark() for _ in range(5)] == [None] * 5
    clock.phase_ends(4)
    clock.phase_ends(4)
    assert device.synchronised == 2
    found = clock.durations([(0, 1000)] * 4, [(0, 1000)])
    assert (found["unprofiled_us"], found["clock"]) == ([], "mean")
    assert found["unprofiled_mean_us"] > 0
    assert "strange" in clock.note
    other = clock_of(monkeypatch, FakeDevice(synchronises=True))
    for _ in range(5):
        other.mark()
    other.phase_ends(3)
    assert other.durations([], [])["unprofiled_mean_us"] is None


def test_a_device_that_cannot_even_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's clock, and a note that says so."""
    clock = clock_of(monkeypatch, FakeDevice(synchronises=False))
    assert clock.mark() is None
    assert clock.durations([(0, 2000)], [])["unprofiled_us"] == [2.0]
    assert "host" in clock.note


def test_events_of_any_device_tell_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.mps keeps its events in a module of its own; an event that fails later leaves the host's clock."""

    class Event:
        made = 0

        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing
            Event.made += 1
            self.at_ms = float(Event.made)

        def record(self) -> None:
            if Event.made > 4:
                raise RuntimeError("captured in a graph")

        def query(self) -> bool:
            return True

        def elapsed_time(self, other: Event) -> float:
            return other.at_ms - self.at_ms

    clock = clock_of(monkeypatch, types.SimpleNamespace(event=types.SimpleNamespace(Event=Event)))
    marks = [clock.mark() for _ in range(4)]
    assert marks[-1] is None
    pairs = list(zip(marks[:-1], [*marks[1:-1], 7], strict=True))
    assert clock.durations(pairs, []) == {
        "unprofiled_us": [1000.0, 1000.0],
        "clock": "device",
        "unprofiled_mean_us": None,
    }
    assert "events fail" in clock.note

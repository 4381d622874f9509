"""Where loaders and optimizers were made and switches set: the user's own line, on real scripts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from capture_runs import capture
from tiers import complete

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset
import settings
settings.choose()  # CALLS
class Own(torch.optim.SGD):
    def __init__(self, parameters):
        super().__init__(parameters, lr=0.1)
model = torch.nn.Linear(8, 1)  # MODEL
first = torch.optim.Adam(  # ADAM
    model.parameters(),
)
second = Own(model.parameters())  # OWN
print("made")
for epoch in range(2):
    loader = DataLoader(TensorDataset(torch.zeros(120, 8)), batch_size=4)  # LOADER
    for (batch,) in loader:
        first.zero_grad()
        model(batch).sum().backward()
        first.step()
        second.step()
try:
    torch.optim.Adam(None)
except TypeError as failure:
    import traceback
    print(len(traceback.extract_tb(failure.__traceback__)))
"""
SETTINGS = """
import torch
def choose():
    torch.set_num_threads(1)  # THREADS
    torch.use_deterministic_algorithms(True)  # DETERMINISTIC
    torch.set_float32_matmul_precision("high")  # PRECISION
    torch.set_default_dtype(torch.float64)  # DOUBLE
    torch.set_default_dtype(torch.float32)  # DTYPE
    torch.autograd.set_detect_anomaly(True)  # ANOMALY
    torch.backends.cuda.enable_flash_sdp(False)  # FLASH
    import tracemalloc
    tracemalloc.start(3)  # TRACEMALLOC
    import gc
    gc.collect()  # GC.COLLECT
"""


def line_of(text: str, mark: str) -> int:
    """The line that ends with this mark."""
    [found] = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith(f"# {mark}")]
    return found


def captured(folder: Path) -> dict[str, Any]:
    (folder / "train.py").write_text(SCRIPT)
    (folder / "settings.py").write_text(SETTINGS)
    done = capture(folder / "out", folder / "train.py")
    assert done.status == 0, done.err
    # The frames of an error of the user's are those of torch and of the script, none of ours.
    assert done.out.split() == ["made", "3"]
    return done.rank


def test_the_lines_of_constructors_and_settings(tmp_path: Path) -> None:
    """The innermost line of the script's own; of a subclass where it is made, not where it calls its base."""
    rank = captured(tmp_path)
    made = {one["name"]: (Path(one["file"]).name, one["line"]) for one in rank["optimizers"]}
    assert made == {"Adam": ("train.py", line_of(SCRIPT, "ADAM")), "Own": ("train.py", line_of(SCRIPT, "OWN"))}
    [loader] = {(Path(one["file"]).name, one["line"]) for one in rank["loaders"]}
    assert {one["dataset_at"]["line"] for one in rank["loaders"]} == {line_of(SCRIPT, "LOADER")}
    assert loader == ("train.py", line_of(SCRIPT, "LOADER"))
    settings = {name: (Path(at["file"]).name, at["line"]) for name, at in rank["settings"]["set_at"].items()}
    marks = ("threads", "deterministic", "anomaly_detection", "flash_sdp", "tracemalloc", "gc.collect")
    expected = {name: line_of(SETTINGS, name.partition("_")[0].upper()) for name in marks}
    expected |= {"matmul_precision": line_of(SETTINGS, "PRECISION"), "default_dtype": line_of(SETTINGS, "DTYPE")}
    expected["double"] = line_of(SETTINGS, "DOUBLE")
    of_script = {"model": ("train.py", line_of(SCRIPT, "MODEL")), "batch_size 4": loader}
    assert settings == of_script | {name: ("settings.py", line) for name, line in expected.items()}
    assert rank["settings"]["matmul_precision_set"]
    assert (rank["settings"]["flash_sdp"], rank["settings"]["traced_frames"]) == (False, 3)


QUIET = """
import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    optimizer.zero_grad()
    model(torch.zeros(4, 8)).sum().backward()
    optimizer.step()
if False:
    torch.set_num_threads(1)
    torch.set_num_threads(2)
"""


@pytest.mark.complete
def test_what_nobody_set_has_no_line(tmp_path: Path) -> None:
    """Nothing is guessed: of two calls of one name neither is named."""
    (tmp_path / "train.py").write_text(QUIET)
    done = capture(tmp_path / "out", tmp_path / "train.py")
    assert done.rank["settings"]["set_at"].keys() == {"model"}
    assert not done.rank["settings"]["matmul_precision_set"]


TABLES = """
import torch
def table(rows):
    return torch.nn.Embedding(rows, 4)  # TABLE
class Named(torch.nn.EmbeddingBag):
    def __init__(self, rows):
        super().__init__(rows, 2, mode="sum")
words, bags = table(50), Named(60)  # BAGS
table(70)
optimizer = torch.optim.SGD([*words.parameters(), *bags.parameters()], lr=0.1)
for _ in range(40):
    optimizer.zero_grad()
    (words(torch.zeros(4, dtype=torch.long)).sum() + bags(torch.zeros(4, 2, dtype=torch.long)).sum()).backward()
    optimizer.step()
"""


@pytest.mark.complete
def test_embeddings_have_the_line_that_made_them(tmp_path: Path) -> None:
    """The innermost line of the script's own, by the size of the table; one that is gone has none."""
    (tmp_path / "train.py").write_text(TABLES)
    found = capture(tmp_path / "out", tmp_path / "train.py").rank["settings"]["set_at"]
    lines = {name: at["line"] for name, at in found.items()}
    table, bags = line_of(TABLES, "TABLE"), line_of(TABLES, "BAGS")
    assert lines == {"embedding 50x4": table, "embedding 60x2": bags, "model": table}


WRITTEN = """
import argparse
import os
os.environ["OMP_NUM_THREADS"] = "1"  # VARIABLE
os.environ.setdefault("ADVISOR_TEST_UNSET", "1")
del os.environ["ADVISOR_TEST_UNSET"]
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.backends.cudnn.deterministic = True  # CUDNN
torch.backends.mkldnn.enabled = False  # ONEDNN
asked = torch.zeros(2).requires_grad_()  # GRADIENT
frozen = torch.nn.Parameter(torch.zeros(2), requires_grad=True).requires_grad_(False)
def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument(
        "--batch-size",
        type=int,
        default=4,  # SIZE
    )
    return parser.parse_args()
def loaders(size, test_size=32):  # TEST
    data = TensorDataset(torch.zeros(240, 8).double(), torch.zeros(240))  # DOUBLE
    return DataLoader(data, size), DataLoader(data, batch_size=test_size), DataLoader(
        data,
        batch_size=2,  # PLAIN
    )
args = options()
bs = args.batch_size
training, evaluation, plain = loaders(size=bs)
model = torch.nn.Linear(8, 1, dtype=torch.float64)  # MODEL
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for loader in (training, evaluation, plain):
        for batch, _ in loader:
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
"""


@pytest.mark.complete
def test_the_text_tells_of_numbers_and_switches(tmp_path: Path) -> None:
    """A number is found behind the names that it is passed by; an attribute and a variable where they are set."""
    (tmp_path / "train.py").write_text(WRITTEN)
    rank = capture(tmp_path / "out", tmp_path / "train.py").rank
    marks = {
        "OMP_NUM_THREADS": "VARIABLE",
        "cudnn_deterministic": "CUDNN",
        "onednn_enabled": "ONEDNN",
        "requires_grad": "GRADIENT",
        "double": "DOUBLE",
        "model": "MODEL",
        "batch_size 4": "SIZE",
        "batch_size 2": "PLAIN",
    }
    found = {name: at["line"] for name, at in rank["settings"]["set_at"].items()}
    assert found == {name: line_of(WRITTEN, mark) for name, mark in marks.items()}
    assert rank["settings"]["onednn_enabled"] is False
    sizes = {one["batch_size"]: (one["batch_size_at"] or {}).get("line") for one in rank["loaders"]}
    assert sizes == {4: line_of(WRITTEN, "SIZE"), 32: line_of(WRITTEN, "TEST"), 2: line_of(WRITTEN, "PLAIN")}
    assert {one["dataset_at"]["line"] for one in rank["loaders"]} == {line_of(WRITTEN, "DOUBLE")}


HELD = """
import numpy as np
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 40)
        self.register_buffer("steps", torch.from_numpy(np.linspace(0, 1, 40)))  # BUFFER
        self.register_buffer("scale", torch.ones(40))
        line = torch.linspace(-1, 1, 11).square().neg().exp()
        self.register_buffer("window", torch.outer(line, line).expand(3, 1, 11, 11).contiguous())  # WINDOW
        self.register_buffer("other", torch.eye(11).expand(3, 1, 11, 11).contiguous())
    def forward(self, x):
        return (self.layer(x) * self.steps * self.scale).sum()
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(60):
    optimizer.zero_grad()
    net(torch.zeros(4, 8)).backward()
    optimizer.step()
"""


# A loss that holds the buffer, and has no parameters.
APART = HELD.replace(
    "net = Net()",
    "inner, loss = torch.nn.Linear(8, 40), Net()\nloss.layer = torch.nn.Identity()\n"
    "net = lambda x: loss(inner(x))\nnet.parameters = inner.parameters",
)


@pytest.mark.complete
@pytest.mark.parametrize("text", [HELD, APART])
def test_buffers_in_float64_and_windows_are_named_with_their_lines(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text(text)
    rank = capture(tmp_path / "out", tmp_path / "train.py").rank
    assert rank["model"]["float64"] == ["Net.steps"]
    assert rank["model"]["separable"] == [{"name": "Net.window", "shape": [3, 1, 11, 11]}]
    lines = {name: rank["settings"]["set_at"][name]["line"] for name in ("double", "window")}
    assert lines == {"double": line_of(text, "BUFFER"), "window": line_of(text, "WINDOW")}


RULES = """
import torch
torch.autograd.set_detect_anomaly(True)  # ANOMALY
model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(20)])
optimizer = torch.optim.Adam(model.parameters(), foreach=False)  # ADAM
for _ in range(60):
    optimizer.zero_grad()
    model(torch.zeros(4, 32)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("rule", "mark"), complete(("anomaly-detection", "ANOMALY"), ("loop-optimizer", "ADAM")))
def test_findings_name_the_line_of_the_setting_first(tmp_path: Path, rule: str, mark: str) -> None:
    from advisor.cli import main

    # Anomaly detection takes so much of the step that the optimizer is a small part of it.
    text = RULES if mark == "ANOMALY" else RULES.replace("torch.autograd.set_detect_anomaly(True)", "")
    (tmp_path / "train.py").write_text(text)
    capture(tmp_path / "out", tmp_path / "train.py")
    main(["analyze", "--quiet", "--output", str(tmp_path / "report.json"), str(tmp_path / "out")])
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    [outcome] = [one for one in report["outcomes"] if one["rule"] == rule]
    [finding] = outcome["findings"]
    assert finding["where"][0]["line"] == line_of(text, mark), sys.version


MODELS = """
import torch
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*[layer() for _ in range(4)])
    def forward(self, x):
        return self.layers(x)
def layer():
    return torch.nn.Linear(8, 8)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = Block(), self.head()
    def head(self):
        return torch.nn.Linear(8, 1)
    def forward(self, x):
        return self.last(self.first(x))
teacher = torch.nn.Linear(800, 800)
model = Net()  # MODEL
whole = Wrapped(model)
optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
batch_size = 6  # BATCH
for index in torch.arange(240).split(batch_size):
    whole(torch.zeros(len(index), 8)).sum().backward()
    optimizer.step()
"""
WRAPPER = """
class Wrapped(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
    def forward(self, x):
        return self.module(x)
"""


@pytest.mark.complete
def test_the_model_that_is_trained_is_named_where_it_is_made(tmp_path: Path) -> None:
    """Not where its layers are, nor another model, nor what wraps it; and the number of a batch without a loader."""
    text = MODELS.replace("class Block", f"{WRAPPER}class Block", 1)
    (tmp_path / "train.py").write_text(text)
    settings = capture(tmp_path / "out", tmp_path / "train.py").rank["settings"]["set_at"]
    assert settings["model"]["line"] == line_of(text, "MODEL")
    assert settings["batch_size 6"]["line"] == line_of(text, "BATCH")


PACKAGE = """
import torch
from torch.utils.data import BatchSampler, DataLoader
def prepared(loader):
    return DataLoader(loader.dataset, batch_sampler=BatchSampler(loader.sampler, loader.batch_size, False))
def train(parameters, data):
    return torch.optim.SGD(parameters, lr=0.1), DataLoader(data, batch_size=4)
"""
PREPARED = """
import torch
from torch.utils.data import DataLoader
from accelerate.fake import prepared, train
model, data = torch.nn.Linear(8, 1), torch.zeros(160, 8)
own = DataLoader(data, batch_size=4)  # OWN
optimizer, loader = train(model.parameters(), torch.zeros(160, 8))  # TRAIN
for one in (prepared(own), loader):
    for batch in one:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
"""


@pytest.mark.complete
def test_what_a_framework_makes_is_told_from_what_it_makes_again(tmp_path: Path) -> None:
    """A loader with a sampler of the framework keeps the line of the script's own; what is new names the framework."""
    package = tmp_path / "site-packages" / "accelerate"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "fake.py").write_text(PACKAGE)
    (tmp_path / "train.py").write_text(PREPARED)
    done = capture(tmp_path / "out", tmp_path / "train.py", env={"PYTHONPATH": str(package.parent)})
    assert done.status == 0, done.err
    loaders = {(one["line"], one.get("made_by")) for one in done.rank["loaders"]}
    train = line_of(PREPARED, "TRAIN")
    assert loaders == {(line_of(PREPARED, "OWN"), None), (train, "accelerate")}
    assert [(one["line"], one["made_by"]) for one in done.rank["optimizers"]] == [(train, "accelerate")]
    assert {(one["line"], one.get("made_in", "")) for one in done.rank["loaders"]} == {
        (line_of(PREPARED, "OWN"), ""),
        (train, "accelerate"),
    }


@pytest.mark.complete
def test_the_package_that_makes_loader_and_optimizer_is_named(tmp_path: Path) -> None:
    """As of a library that runs the loop: its own code calls DataLoader(...) and torch.optim.SGD(...)."""
    package = tmp_path / "site-packages" / "fitting"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "fake.py").write_text(PACKAGE)
    own = PREPARED.replace("accelerate.fake", "fitting.fake")
    (tmp_path / "train.py").write_text(own)
    done = capture(tmp_path / "out", tmp_path / "train.py", env={"PYTHONPATH": str(package.parent)})
    assert done.status == 0, done.err
    train = line_of(own, "TRAIN")
    made = {(one["line"], one.get("made_in", ""), one.get("made_by")) for one in done.rank["loaders"]}
    assert (train, "fitting", None) in made
    assert [(one["line"], one["made_in"]) for one in done.rank["optimizers"]] == [(train, "fitting")]

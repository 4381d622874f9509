"""Every name of torch that a rule mentions, and every argument that a fix passes, is there in the installed torch."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"(?<![\w./-])torch(?:\.[A-Za-z_]\w*)+(?![\w*])")
# Rows of traces are written like names.
ROWS = {"torch.distributed.ddp.reducer"}
# How fixes call what they import; where a name is not torch's its arguments are its library's business.
CALLED = {
    "DataLoader": "torch.utils.data.DataLoader",
    "DistributedSampler": "torch.utils.data.DistributedSampler",
    "DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "FullyShardedDataParallel": "torch.distributed.fsdp.FullyShardedDataParallel",
    "MixedPrecision": "torch.distributed.fsdp.MixedPrecision",
    "MixedPrecisionPolicy": "torch.distributed.fsdp.MixedPrecisionPolicy",
    "CPUOffloadPolicy": "torch.distributed.fsdp.CPUOffloadPolicy",
    "fully_shard": "torch.distributed.fsdp.fully_shard",
    "init_device_mesh": "torch.distributed.device_mesh.init_device_mesh",
    "ZeroRedundancyOptimizer": "torch.distributed.optim.ZeroRedundancyOptimizer",
    "checkpoint": "torch.utils.checkpoint.checkpoint",
    "pad_sequence": "torch.nn.utils.rnn.pad_sequence",
    "PipelineStage": "torch.distributed.pipelining.PipelineStage",
    "Schedule1F1B": "torch.distributed.pipelining.Schedule1F1B",
}
# Public from later versions of torch on.
LATER = {"fully_shard", "MixedPrecisionPolicy", "CPUOffloadPolicy", "init_device_mesh"}


def sources() -> list[Path]:
    return sorted((ROOT / "rules").rglob("*.py"))


def resolved(name: str) -> Any:
    """The object of a dotted name; None where there is none."""
    found: Any = torch
    parts = name.split(".")
    for at, part in enumerate(parts[1:], start=2):
        if hasattr(found, part):
            found = getattr(found, part)
            continue
        try:
            found = importlib.import_module(".".join(parts[:at]))
        except ImportError:
            return None
    return found


def fixes() -> Iterator[tuple[str, str]]:
    """(file, lines) of what fixes tell to write, where they are plain text."""
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Fix" and len(node.args) == 4:
                after = node.args[3]
                if isinstance(after, ast.Constant) and isinstance(after.value, str):
                    yield path.name, after.value


def calls(lines: str) -> Iterator[tuple[str, list[str]]]:
    """(name, keywords) of each call in some lines; nothing where they are a command or a fragment."""
    try:
        tree = ast.parse(lines.replace(", ...)", ")").replace("(...)", "()"))
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and re.fullmatch(r"[\w.]+", ast.unparse(node.func)):
            yield ast.unparse(node.func), [one.arg for one in node.keywords if one.arg]


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.stem)
def test_names_of_torch_are_there(path: Path) -> None:
    text = path.read_text("utf-8")
    missing = [name for name in sorted(set(NAME.findall(text))) if resolved(name) is None]
    assert [name for name in missing if name not in ROWS] == []


def test_arguments_that_fixes_pass_are_taken() -> None:
    checked = set()
    for file, lines in fixes():
        for name, keywords in calls(lines):
            target = name if name.startswith("torch.") else CALLED.get(name)
            if target is None or not keywords:
                continue
            taken = resolved(target)
            assert taken is not None or name in LATER, (file, target)
            if taken is None:
                continue
            try:
                parameters = inspect.signature(taken).parameters
            except ValueError:
                continue
            any_keyword = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
            assert any_keyword or set(keywords) <= set(parameters), (file, target, keywords)
            checked.add(target)
    # The walk finds what it is there for.
    assert {"torch.compile", "torch.nn.parallel.DistributedDataParallel", "torch.autocast"} <= checked
    assert "torch.distributed.fsdp.MixedPrecisionPolicy" in checked or not hasattr(torch, "accelerator")


@pytest.mark.parametrize(
    ("line", "stands"),
    [
        ("torch.backends.cudnn.benchmark", "False"),
        ("torch.are_deterministic_algorithms_enabled()", "False"),
        ("inspect.signature(torch.optim.Optimizer.zero_grad).parameters['set_to_none'].default", "True"),
        ("inspect.signature(torch.utils.data.DataLoader).parameters['num_workers'].default", "0"),
        ("inspect.signature(torch.utils.data.DataLoader).parameters['persistent_workers'].default", "False"),
        ("torch._dynamo.config.compiled_autograd", "False"),
        ("torch._inductor.config.reorder_for_compute_comm_overlap", "False"),
    ],
)
def test_what_stands_without_a_fix(line: str, stands: str) -> None:
    """Defaults that pages name, or that make a fix a change."""
    import torch._dynamo
    import torch._inductor.config

    assert str(eval(line, {"torch": torch, "inspect": inspect})) == stands

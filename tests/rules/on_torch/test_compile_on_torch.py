"""Models that are compiled too often or in pieces, on traces that PyTorch writes here and now."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch_steps import network, outcome

from advisor.capture.record import RankRecord

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]

from advisor.capture.inside.facts.compiler import marks_regions  # noqa: E402  (needs torch)


def compiled(model: Any, **options: Any) -> Any:
    """The model compiled without a code generator: what matters here is when and how often it is compiled."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    return torch.compile(model, backend="eager", **options)


def recorded(recompiles: list[str]) -> RankRecord:
    """The record of a run, with what the compiler counted so far."""
    breaks = {str(reason): int(n) for reason, n in torch._dynamo.utils.counters["graph_break"].items()}
    return RankRecord(compile={"graph_breaks": breaks, "recompiles": recompiles, "regions": marks_regions()})


regions = pytest.mark.skipif(not marks_regions(), reason="torch before 2.6 records no compiled regions")


def test_compilations_in_the_profiled_steps_are_found_and_those_before_are_not(tmp_path: Path) -> None:
    net = compiled(network(), dynamic=False)
    lengths = iter(range(8, 100))
    found = outcome("recompiles", lambda: net(torch.randn(next(lengths), 64)).sum().backward(), tmp_path, recorded([]))
    assert found.status == "found"
    assert found.findings[0].facts["per_step"] == 1
    steady = compiled(network(), dynamic=False)
    x = torch.randn(8, 64)
    assert outcome("recompiles", lambda: steady(x).sum().backward(), tmp_path).status == "clear"


RECOMPILES = """
import json, torch
from advisor.capture.inside.facts.compiler import facts
for name in ("first", "second"):
    exec(f"def {name}(x): return x.relu() * 2")
    net = torch.compile(globals()[name], backend="eager", dynamic=False)
    for length in (8, 9, 10, 8, 11):
        net(torch.randn(length, 4))
print(json.dumps(facts()["recompiles"]))
"""


@pytest.mark.complete
def test_each_time_that_a_function_is_compiled_anew_has_a_reason() -> None:
    """As PyTorch 2.7 keeps them, be it that they are put together from what each function's guards said."""
    done = subprocess.run([sys.executable, "-c", RECOMPILES], capture_output=True, text=True, check=True)
    reasons = json.loads(done.stdout)
    if reasons is None:
        pytest.skip("torch before 2.2 keeps no reasons")
    frames = [reason.partition("/")[0] for reason in reasons]
    assert [frames.count(frame) for frame in dict.fromkeys(frames)] == [3, 3]
    # A call finds the version of 8 rows before the last one, and PyTorch tries it first from then on.
    lengths = [reason.partition("expected ")[2].partition("#")[0].strip() for reason in reasons]
    assert lengths == ["8, actual 9", "9, actual 10", "8, actual 11"] * 2


@regions
def test_a_function_that_is_compiled_no_more_is_found(tmp_path: Path) -> None:
    net = compiled(network(), dynamic=False)
    for length in range(8, 20):  # more lengths than PyTorch compiles a function for
        net(torch.randn(length, 64))
    reasons = [f"0/{n}: tensor 'x' size mismatch at index 0. expected {n + 8}, actual {n + 9}" for n in range(8)]
    found = outcome("recompiles", lambda: net(torch.randn(30, 64)).sum().backward(), tmp_path, recorded(reasons))
    assert [finding.facts["functions"] for finding in found.findings] == [1]
    assert "uncompiled" in found.findings[0].message
    x = torch.randn(8, 64)  # a length that it was compiled for
    assert outcome("recompiles", lambda: net(x).sum().backward(), tmp_path, recorded(reasons)).status == "clear"


def test_a_print_cuts_a_compiled_model_in_two(tmp_path: Path) -> None:
    class Talkative(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, says: bool) -> None:
            super().__init__()
            self.first, self.second, self.says = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64), says

        def forward(self, x: Any) -> Any:
            y = self.first(x).relu()
            if self.says:
                print(end="")
            return self.second(y)

    x = torch.randn(8, 64)
    for says, status in ((True, "found"), (False, "clear")):
        net = compiled(Talkative(says))
        net(x)
        found = outcome("graph-breaks", lambda net=net: net(x).sum().backward(), tmp_path, recorded([]))  # type: ignore[misc]
        if says and not marks_regions():
            assert found.status == "skipped"
            assert "records no compiled regions" in found.reason
            continue
        assert found.status == status
        if says:
            assert found.findings[0].facts["pieces"] == 2


@regions
def test_layers_that_are_compiled_one_by_one(tmp_path: Path) -> None:
    layers = [torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU()) for _ in range(16)]
    torch._dynamo.reset()
    each = torch.nn.Sequential(*(torch.compile(layer, backend="eager") for layer in layers))
    x = torch.randn(8, 32)
    limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"  # before 2.7
    with torch._dynamo.config.patch(**{limit: 64}):
        each(x)
        found = outcome("compiled-pieces", lambda: each(x).sum().backward(), tmp_path, recorded([]))
    assert found.status == "found"
    assert found.findings[0].facts["pieces"] == len(layers)
    whole = compiled(torch.nn.Sequential(*layers))
    whole(x)
    assert outcome("compiled-pieces", lambda: whole(x).sum().backward(), tmp_path, recorded([])).status == "clear"

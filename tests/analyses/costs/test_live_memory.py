"""What holds memory at the peak: drawn events with sums by hand, and a script of known sizes under torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.analyses.costs.live_memory import LiveMemory, paired
from advisor.computed import Computed, Missing
from advisor.report.memory_view import memory
from advisor.trace.events import MemoryEvents
from advisor.trace.read.load import read_bytes

MB = 1 << 20
# Two linear layers with Adam; each size below follows from these.
BATCH, INPUT, HIDDEN, OUTPUT = 256, 512, 1024, 256
WEIGHTS = 4 * (INPUT * HIDDEN + HIDDEN + HIDDEN * OUTPUT + OUTPUT)
SCRIPT = f"""
import torch
from torch import nn
model = nn.Sequential(nn.Linear({INPUT}, {HIDDEN}), nn.ReLU(), nn.Linear({HIDDEN}, {OUTPUT}))
optimizer = torch.optim.Adam(model.parameters(), foreach=False)
x, y = torch.randn(8192, {INPUT}), torch.randn(8192, {OUTPUT})
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size={BATCH})
for epoch in range(4):
    for x, y in data:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
"""


def row(us: float, size: int, address: int, total: int = -1, device: int = 1) -> dict[str, object]:
    args = {"Bytes": size, "Addr": address, "Total Allocated": total, "Device Type": device, "Device Id": 0}
    return {"ph": "i", "name": "[memory]", "ts": us, "pid": 1, "tid": 1, "s": "t", "args": args}


def events(*rows: tuple[int, int, int]) -> MemoryEvents:
    times, sizes, addresses = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    none = np.full(len(times), -1, np.int64)
    zero = np.zeros(len(times), np.int32)
    return MemoryEvents(times, sizes, none, none, zero, zero, addresses)


def test_a_free_ends_the_block_of_its_address() -> None:
    blocks = paired(events((1, 5, 70), (2, 5, 80), (3, -5, 70), (4, -9, 90)), np.arange(4))
    assert blocks.size.tolist() == [5, 5, 9]
    assert blocks.freed_ns.tolist()[0::2] == [3, 4]
    assert blocks.freed_ns[1] > 4
    assert blocks.born_ns[2] < 0  # it was there before


def test_without_addresses_the_last_of_that_size_is_freed() -> None:
    blocks = paired(events((1, 5, -1), (2, 5, -1), (3, -5, -1)), np.arange(3))
    assert blocks.freed_ns[1] == 3
    assert blocks.freed_ns[0] > 3


def test_the_peak_of_a_drawn_device_adds_up() -> None:
    """By hand: 100 MB before, 8 of them freed later; 30 and 20 MB at once."""
    drawing: dict[str, list[object]] = {}
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0.0, "dur": 100.0, "args": {}}
    drawing["traceEvents"] = [
        op,
        row(10, 30 * MB, 1, 130 * MB),
        row(20, 20 * MB, 2, 150 * MB),
        row(30, -20 * MB, 2, 130 * MB),
        row(40, -8 * MB, 3, 122 * MB),
    ]
    computed = Computed(trace=read_bytes(json.dumps(drawing).encode(), "drawn"))
    live = computed.get(LiveMemory)
    assert (live.on_device, live.peak_bytes, live.held) == (True, 150 * MB, {"unknown": 92 * MB})
    shown = memory(computed, 0, None)
    assert shown is not None
    for holders in (shown.kinds, shown.modules, shown.lines):
        assert sum(one.bytes for one in holders) == 150 * MB
    assert {one.name: one.bytes for one in shown.kinds}["temporaries"] == 20 * MB


def test_a_trace_without_memory_events_says_what_to_do() -> None:
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0.0, "dur": 100.0}
    computed = Computed(trace=read_bytes(json.dumps({"traceEvents": [op]}).encode(), "drawn"))
    with pytest.raises(Missing, match="--memory"):
        computed.get(LiveMemory)
    assert memory(computed, 0, None) is None


@pytest.mark.complete
def test_a_real_script_of_known_sizes(tmp_path: Path) -> None:
    """Independent: sizes of the tensors by hand."""
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "advisor", "run", "--memory", "-o", str(tmp_path / "out"), "train.py"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=300)
    peak = json.loads((tmp_path / "out" / "report.json").read_bytes())["memory"]
    kinds = {one["name"]: one["bytes"] for one in peak["kinds"]}
    assert kinds["weights"] == WEIGHTS
    assert kinds["gradients"] == WEIGHTS
    assert kinds["optimizer"] == pytest.approx(2 * WEIGHTS, abs=64)  # and a step count of each parameter
    assert kinds["input"] == 4 * BATCH * (INPUT + OUTPUT)
    assert kinds["activations"] >= 4 * BATCH * OUTPUT  # the model's output outlives the step
    for part in ("kinds", "modules", "lines"):
        assert sum(one["bytes"] for one in peak[part]) == peak["peak_bytes"]
    # Gradients are of the module whose backward made them; its output was freed there.
    modules = {one["name"]: one["bytes"] for one in peak["modules"]}
    assert modules["0"] == 4 * (INPUT * HIDDEN + HIDDEN)
    assert modules["2"] == 4 * (HIDDEN * OUTPUT + OUTPUT)


@pytest.mark.complete
def test_out_of_memory_leaves_a_report_and_the_scripts_exception(tmp_path: Path) -> None:
    """A real allocation that the system refuses, after the profiled steps."""
    pytest.importorskip("torch")
    limited = SCRIPT.replace("range(4)", "range(8)")
    limited += """
import resource
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), used + (256 << 20)))
torch.empty(8 << 30, dtype=torch.uint8)
"""
    (tmp_path / "train.py").write_text(limited)
    command = [sys.executable, "-m", "advisor", "run", "-o", str(tmp_path / "out"), "train.py"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "can't allocate memory: you tried to allocate 8589934592 bytes" in done.stderr
    assert (tmp_path / "out" / "report.json").exists()


def _one_after_the_other(rows: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """(bytes, born, freed) of each block, by what lives at each moment."""
    never, before = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    blocks: list[tuple[int, int, int]] = []
    alive: dict[int, list[int]] = {}
    for time, (size, address) in enumerate(rows):
        living = alive.setdefault(address if address >= 0 else -abs(size), [])
        if size > 0:
            living.append(len(blocks))
            blocks.append((size, time, never))
        elif living and blocks[living[-1]][0] == -size:
            at = living.pop()
            blocks[at] = (*blocks[at][:2], time)
        elif size:
            blocks.append((-size, before, time))
    return blocks


_CHANGES = st.sampled_from([1, 1, 1, -1, -1, -1, 2, -2, 0])


@given(st.lists(st.tuples(_CHANGES, st.integers(-1, 3)), min_size=1, max_size=30))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_frees_end_the_last_allocation_that_lives(rows: list[tuple[int, int]]) -> None:
    blocks = paired(events(*((time, *row) for time, row in enumerate(rows))), np.arange(len(rows)))
    found = zip(blocks.size.tolist(), blocks.born_ns.tolist(), blocks.freed_ns.tolist(), strict=True)
    assert list(found) == _one_after_the_other(rows)

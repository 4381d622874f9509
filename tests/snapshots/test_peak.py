"""What held memory at the peak of an allocator's history, against a loop that plays the history forwards."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from advisor.cli import main
from advisor.errors import InputError
from advisor.snapshots.peak import BEFORE, NO_FRAMES, line_of, peaks

LIBRARY = {"filename": "/env/site-packages/torch/nn/modules/linear.py", "line": 9, "name": "forward"}
CPP = {"filename": "??", "line": 0, "name": "at::empty"}


def _frames(line: int) -> list[dict[str, Any]]:
    return [CPP, LIBRARY, {"filename": "train.py", "line": line, "name": "step"}, {**LIBRARY, "name": "outer"}]


def _history(seed: int, length: int = 400, kept: int = 120) -> tuple[dict[str, Any], dict[str, int], int]:
    """A snapshot whose history is the last `kept` entries, with the bytes by line and in all at its peak."""
    draw = random.Random(seed)
    live: dict[int, tuple[int, int]] = {}
    entries, states = [], []
    for _ in range(length):
        if live and draw.random() < 0.48:
            address = draw.choice(list(live))
            states.append(dict(live))  # until the free is completed
            size, line = live.pop(address)
            entries.append({"action": "free_requested", "addr": address, "size": size, "frames": []})
            entries.append({"action": "free_completed", "addr": address, "size": size, "frames": _frames(99)})
        else:
            address, size, line = 4096 * draw.randint(1, 60), 512 * draw.randint(1, 50), draw.randint(1, 6)
            if address in live:
                continue
            live[address] = (size, line)
            entries.append({"action": "alloc", "addr": address, "size": size, "frames": _frames(line)})
        states.append(dict(live))
    first = len(entries) - kept
    totals = [sum(size for size, _ in state.values()) for state in states]
    best = states[max(range(first - 1, len(states)), key=lambda at: (totals[at], at))]
    lines: dict[str, int] = {}
    for size, line in best.values():
        lines[f"train.py:{line} step"] = lines.get(f"train.py:{line} step", 0) + size
    blocks = [
        {"address": address, "size": size, "state": "active_allocated", "frames": _frames(line)}
        for address, (size, line) in live.items()
    ]
    blocks.append({"address": 1 << 40, "size": 7, "state": "inactive"})
    segment = {"device": 0, "address": 4096, "total_size": 1 << 20, "blocks": blocks}
    return {"segments": [segment], "device_traces": [entries[first:], []]}, lines, sum(lines.values())


@pytest.mark.parametrize("seed", range(20))
def test_the_peak_is_that_of_the_history_played_forwards(seed: int) -> None:
    snapshot, lines, total = _history(seed)
    (peak,) = peaks(snapshot, "s")
    assert peak.peak_bytes == total == sum(row.bytes for row in peak.lines)
    # Blocks of before the history that were freed in it left no line of theirs.
    found = {row.line: row.bytes for row in peak.lines if row.line != BEFORE}
    assert all(found[line] <= lines[line] for line in found)


def test_a_whole_history_names_every_line() -> None:
    history = [
        {"action": "alloc", "addr": 1, "size": 100, "frames": _frames(1)},
        {"action": "alloc", "addr": 2, "size": 50, "frames": _frames(2)},
        {"action": "free_completed", "addr": 1, "size": 100, "frames": _frames(9)},
        {"action": "alloc", "addr": 1, "size": 30, "frames": _frames(3)},
        {"action": "oom", "size": 10**9, "device_free": 5, "frames": _frames(4)},
    ]
    blocks = [{"address": 1, "size": 30, "state": "active_allocated", "frames": []}]
    blocks += [{"address": 2, "size": 50, "state": "active_allocated", "frames": []}]
    segment = {"device": 0, "address": 1, "total_size": 4096, "blocks": blocks}
    (peak,) = peaks({"segments": [segment], "device_traces": [history]}, "s")
    assert [(row.line, row.bytes) for row in peak.lines] == [("train.py:1 step", 100), ("train.py:2 step", 50)]
    assert (peak.peak_bytes, peak.end_bytes, peak.reserved_bytes) == (150, 80, 4096)
    assert peak.failed == (("train.py:4 step", 10**9),)


def test_lines_of_frames() -> None:
    assert line_of(_frames(7)) == "train.py:7 step"
    assert line_of([CPP, LIBRARY]).startswith("/env/site-packages/torch/nn/modules/linear.py:9")
    assert line_of([CPP]) == line_of([]) == NO_FRAMES


@pytest.mark.parametrize(
    "data", [[], {}, {"segments": 3}, {"segments": [{}]}, {"segments": [], "device_traces": [[3]]}]
)
def test_what_is_no_snapshot_is_refused_in_one_line(data: Any) -> None:
    with pytest.raises(InputError, match="not a snapshot of the CUDA allocator") as refusal:
        peaks(data, "s")
    assert "\n" not in str(refusal.value)


def test_the_command_prints_the_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(_history(3)[0]))
    assert main(["memory", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("GPU 0: ")
    assert "train.py:" in out
    path.write_bytes(b"cos\nsystem\n(S'id'\ntR.")
    assert main(["memory", str(path)]) == 4
    assert capsys.readouterr().err.count("\n") == 1

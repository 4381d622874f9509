"""Clocks held down by heat or power: what is read where, and what the gate makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.gate import clocks, verdict
from advisor.gate.pairs import Mode, Pair

IDLE, POWER_CAP, HOT, BRAKE = "0x0000000000000001", "0x0000000000000004", "0x0000000000000060", "0x0000000000000080"


def program(folder: Path, lines: str, *, knows: str = "clocks_event_reasons.active") -> str:
    """A stand-in for nvidia-smi that knows one name of the field."""
    file = folder / "nvidia-smi"
    file.write_text(
        f'#!/bin/sh\ncase "$1" in --query-gpu={knows}) printf "{lines}\\n";;\n'
        '*) echo "Field is not a valid field to query."; exit 2;; esac\n'
    )
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize(
    ("lines", "held"),
    [(IDLE, False), (POWER_CAP, False), (HOT, True), (BRAKE, True), (f"{IDLE}\\n{HOT}", True), ("[N/A]", False)],
)
@pytest.mark.parametrize("name", ["clocks_event_reasons.active", "clocks_throttle_reasons.active"])
def test_reasons_of_a_gpu(tmp_path: Path, lines: str, held: bool, name: str) -> None:
    assert clocks.gpu_held(program(tmp_path, lines, knows=name)) is held


def test_where_nothing_can_be_asked(tmp_path: Path) -> None:
    assert not clocks.gpu_held(None)
    assert not clocks.gpu_held(str(tmp_path / "no-such-program"))
    assert not clocks.gpu_held(program(tmp_path, HOT, knows="something else"))
    assert clocks.cpu_events(tmp_path) == 0


def test_thermal_events_of_the_cores_are_added(tmp_path: Path) -> None:
    for core, text in ((0, "3\n"), (1, "4\n"), (2, "unreadable\n")):
        folder = tmp_path / f"cpu{core}" / "thermal_throttle"
        folder.mkdir(parents=True)
        (folder / "core_throttle_count").write_text(text)
    assert clocks.cpu_events(tmp_path) == 7


def test_a_watch_asks_a_gpu_only_where_one_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, HOT)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for on_device in (True, False):
        watch = clocks.Watch(on_device=on_device)
        assert not watch.held
        watch.look()
        assert watch.held is on_device


@pytest.mark.parametrize(
    ("mode", "held", "said"), [("lockstep", True, []), ("blocks", False, []), ("blocks", True, ["inconclusive"])]
)
def test_a_slow_clock_decides_nothing_where_the_sides_did_not_share_it(mode: Mode, held: bool, said: list[str]) -> None:
    pairs = [Pair(0.1, 0.1, 8000.0, 8800.0, 60, 1, held) for _ in range(6)]
    assert [one for one, _ in verdict.of_clocks(pairs, mode)] == said

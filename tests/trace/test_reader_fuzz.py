"""A seeded part of the fuzzer, and texts that make careless patterns slow."""

from __future__ import annotations

import signal
from pathlib import Path

import fuzz_reader
import pytest


def test_a_seeded_part_of_the_fuzzer(tmp_path: Path) -> None:
    seen = fuzz_reader.run(400, 1, tmp_path, fuzz_reader.corpus())
    assert seen["damaged"] > 0
    assert seen["refused"] > 0


@pytest.mark.parametrize("number", range(len(fuzz_reader.long_inputs(100))))
def test_long_damage_costs_no_more_than_its_length(number: int, tmp_path: Path) -> None:
    """3 MB each, under the fuzzer's limit of CPU seconds: a pattern of quadratic cost would take hours."""
    signal.signal(signal.SIGVTALRM, fuzz_reader._hang)
    path = tmp_path / "t.json"
    path.write_bytes(fuzz_reader.long_inputs()[number])
    signal.setitimer(signal.ITIMER_VIRTUAL, fuzz_reader.HANG_SECONDS)
    try:
        fuzz_reader.check(path)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)

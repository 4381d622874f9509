"""Which of a user's ranges are steps, in traces that Kineto did not write."""

from __future__ import annotations

from pathlib import Path

import perfetto_writer as made
import pytest

from advisor.analyses.base.step_ranges import marked_by_ranges
from advisor.trace.events import Trace
from advisor.trace.read.load import load, read_bytes

Range = tuple[str, int, int]


def _trace(folder: Path, *ranges: Range) -> Trace:
    edges = [(start, 1, made.begin(start, 1, made.block(23, name))) for name, start, _ in ranges]
    edges += [(end, 0, made.end(end, 1)) for _, _, end in ranges]
    data = made.thread_track(1) + b"".join(edge for _, _, edge in sorted(edges, key=lambda edge: edge[:2]))
    (folder / "t.pftrace").write_bytes(data)
    return load(folder / "t.pftrace")


def _each(name: str, start: int, length: int, count: int = 4, every: int = 100) -> list[Range]:
    return [(name.replace("#", str(at)), start + every * at, start + every * at + length) for at in range(count)]


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        (_each("step #", 0, 90), "step 0"),
        (_each("train_step", 0, 90), "train_step"),
        (_each("iteration=#", 0, 90) + _each("inner", 10, 60), "iteration=0"),
        (_each("outer #", 0, 95) + _each("step #", 5, 80), "step 0"),
        (_each("epoch #", 0, 4000, 3, 4000) + _each("batch #", 1, 90, 100), "batch 0"),
        (_each("work", 0, 90), "work"),
        (_each("optimizer.step", 0, 90), None),
        (_each("forward", 0, 90), None),
        (_each("step #", 0, 90, count=2), None),
        (_each("log step", 0, 5), None),
        ([("step", 0, 400), ("step", 10, 20), ("step", 30, 40)], None),
    ],
)
def test_ranges_that_repeat_and_fill_the_loop_are_steps(
    ranges: list[Range], expected: str | None, tmp_path: Path
) -> None:
    found = marked_by_ranges(_trace(tmp_path, *ranges))
    assert (found and found.labels[0]) == expected
    if found:
        starts = [start for name, start, _ in sorted(ranges, key=lambda one: one[1]) if name in found.labels]
        assert (found.spans[:, 0] - found.spans[0, 0]).tolist() == [start - starts[0] for start in starts]


def test_kinetos_traces_are_left_to_their_own_marks() -> None:
    rows = ", ".join(
        f'{{"ph": "X", "cat": "user_annotation", "name": "step", "ts": {at * 10}, "dur": 9}}' for at in range(5)
    )
    assert marked_by_ranges(read_bytes(f'{{"traceEvents": [{rows}]}}'.encode(), "t")) is None

"""Which library hands out the host's memory, and how often its pages are faulted in again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from capture_runs import capture

from advisor.capture.inside.facts import host_allocator

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells")

# Each step fills two tensors of 4 MB; kept open to memory of its own: blocks of that size are mapped each time.
SCRIPT = """
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    for _ in range(2):
        torch.empty(1 << 20).fill_(1.0)
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
"""
_PAGES = 2 * (4 << 20) // os.sysconf("SC_PAGE_SIZE")


def test_a_library_loaded_before_malloc_is_named(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    line = "7f00-7f01 r-xp 00000000 fe:00 12 /usr/lib/x86_64-linux-gnu/{}\n7f02-7f03 rw-p 00000000 00:00 0\n"
    for file, known in (("libjemalloc.so.2", "jemalloc"), ("libtcmalloc_minimal.so.4", "tcmalloc")):
        maps.write_text(line.format(file))
        assert host_allocator.name(str(maps)) == known
    assert host_allocator.name(str(tmp_path / "none")) is None
    maps.write_text(line.format("libc.so.6"))
    expected = "glibc" if "glibc" in (os.confstr("CS_GNU_LIBC_VERSION") or "") else None
    assert host_allocator.name(str(maps)) == expected


@pytest.mark.torch
@pytest.mark.parametrize(("threshold", "most"), [("1048576", 2 * _PAGES), ("1073741824", _PAGES / 8)])
def test_pages_that_come_back_each_step_are_counted(tmp_path: Path, threshold: str, most: float) -> None:
    """Independent: the sizes of the two tensors, which are mapped in each step, or kept."""
    pytest.importorskip("torch")
    if host_allocator.name() != "glibc":
        pytest.skip("another allocator than glibc's")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    kept = {"MALLOC_MMAP_THRESHOLD_": threshold, "MALLOC_TRIM_THRESHOLD_": "1073741824"}
    done = capture(tmp_path / "out", script, env={**os.environ, **kept})
    assert done.status == 0, done.err
    vitals = done.rank["vitals"]
    again = (vitals["page_faults"] - max(vitals["grown_pages"], 0)) / vitals["timed_steps"]
    assert again <= most
    if most > _PAGES:
        assert again >= 0.95 * _PAGES
    assert done.rank["settings"]["allocator"] == "glibc"
    assert done.rank["environment"]["MALLOC_MMAP_THRESHOLD_"] == threshold

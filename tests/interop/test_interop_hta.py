"""HTA gets the same trace: its figures on what we hand over equal its figures on the file itself.

Runs in HTA's own environment (`pip install "torch-advisor[hta]"`, pandas < 3); skipped elsewhere.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

import advisor
from advisor.errors import InputError
from advisor.interop.hta import trace_analysis

hta = pytest.importorskip("hta.trace_analysis", reason="HolisticTraceAnalysis has an environment of its own")
REAL = Path(__file__).parents[2].parent / "shared" / "traces"
pytestmark = pytest.mark.skipif(not REAL.is_dir(), reason="the real traces do not lie beside this checkout")

ONE = (
    "resnet50_workers0_v100.pt.trace.json.gz",
    "resnet_fp32_v100_ns.pt.trace.json.gz",
    "timesformer_inference_h100.json.gz",
    "resnet_checkpointing_ddp_mi300_rank0of8.json.gz",
)


def _figures(analysis: Any) -> list[float]:
    breakdown = analysis.get_temporal_breakdown(visualize=False)
    overlap = analysis.get_comm_comp_overlap(visualize=False).fillna(0)
    return [*breakdown[["idle_time_pctg", "compute_time_pctg"]].to_numpy().ravel(), *overlap.to_numpy().ravel()]


@pytest.mark.parametrize("name", ONE)
def test_one_trace(name: str) -> None:
    direct = hta.TraceAnalysis(trace_files={0: str(REAL / name)}, trace_dir="/")
    # HTA rounds to whole µs; in the file with ns since 1970 its floats hold steps of 0.25 µs, so it rounds otherwise.
    assert _figures(trace_analysis(REAL / name)) == pytest.approx(_figures(direct), abs=0.4 if "_ns" in name else 0.02)


def test_eight_ranks_from_a_folder() -> None:
    folder = REAL / "dlrm_8ranks_v100"
    files = {rank: str(next(folder.glob(f"worker{rank}_*"))) for rank in range(8)}
    direct = hta.TraceAnalysis(trace_files=files, trace_dir="/")
    ours = trace_analysis(folder)
    assert _figures(ours) == pytest.approx(_figures(direct), abs=0.02)
    assert ours.get_potential_stragglers() == direct.get_potential_stragglers()


def test_a_loaded_trace_and_one_that_hta_cannot_open(tmp_path: Path) -> None:
    path = REAL / ONE[0]
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.write(path, path.name)
    assert _figures(trace_analysis(advisor.load(path))) == _figures(trace_analysis(tmp_path / "t.zip"))


def test_unrelated_traces_are_refused() -> None:
    with pytest.raises(InputError, match="unrelated"):
        trace_analysis([REAL / ONE[0], REAL / ONE[1]])

"""`advisor.load(path).to_pandas()`: the documented columns with their units."""

from __future__ import annotations

from pathlib import Path

import kineto_files.dialects as made
import numpy as np
import pandas as pd

import advisor
from advisor.trace.export import frame, write
from advisor.trace.read import load


def test_every_column_is_documented_and_has_its_kind() -> None:
    data = load.read_bytes(made.good().encode(), "t").to_pandas()
    text = frame.to_pandas.__doc__ or ""
    assert all(column in text for column in data.columns)
    assert data["start_ns"].dtype == np.int64
    assert data["start_us"].iloc[0] == 0
    assert data["stream"].dtype == pd.Int64Dtype()
    assert data.attrs["rank"] == 1


def test_figures_from_the_frame() -> None:
    data = load.read_bytes(made.good().encode(), "t").to_pandas()
    kernels = data[data["category"] == "kernel"]
    assert len(kernels) == 6
    assert kernels["dur_us"].sum() == 180
    assert kernels["stream"].tolist() == [7] * 6
    assert data[data["device_work"]]["dur_us"].sum() == 6 * (30 + 10 + 2)
    linear = data[data["name"] == "aten::linear"].iloc[0]
    assert linear["dims"] == "[[8, 4], [4, 4], []]"
    assert pd.isna(linear["stream"])


def test_a_trace_written_again_reads_the_same(tmp_path: Path) -> None:
    first = load.read_bytes(made.good().encode(), "t")
    write.write_json(first, tmp_path / "again.json.gz")
    again = advisor.load(tmp_path / "again.json.gz")
    left, right = first.to_pandas(), again.to_pandas()
    columns = [name for name in left.columns if name not in ("thread", "start_us", "stream")]
    pd.testing.assert_frame_equal(left[columns], right[columns], check_categorical=False)

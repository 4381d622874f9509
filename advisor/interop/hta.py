"""Passes traces to HolisticTraceAnalysis: `trace_analysis(paths)` returns its `TraceAnalysis` on the same data.

    from advisor.interop.hta import trace_analysis
    analysis = trace_analysis("traces/")            # files, a folder, or loaded traces
    analysis.get_temporal_breakdown(visualize=False)

HTA reads files. Each trace is written for it in the current format into a temporary folder, so that it reads the same
events as this package, regardless of the era, compression or damage of the original file.
HTA is an extra that needs a separate environment: `pip install "torch-advisor[traceinsight]"`, its name from 0.6 on, or
`torch-advisor[hta]`, its earlier releases (both with pandas < 3).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from advisor.errors import InputError, UsageError
from advisor.trace.events import Trace
from advisor.trace.export.write import write_json
from advisor.trace.read.load import load

Given = str | os.PathLike[str] | Trace


def trace_analysis(given: Given | Iterable[Given], **options: Any) -> Any:
    """HTA's `TraceAnalysis` of one job.

    given: a path, a loaded Trace, or several, one per rank. options: HTA's own (`include_last_profiler_step` …).
    Raises UsageError if HTA is not installed, InputError if a path has no trace, or two jobs.
    """
    try:
        from hta.trace_analysis import TraceAnalysis
    except ImportError as missing:
        what = 'HTA is not installed; create an environment with `pip install "torch-advisor[traceinsight]"`'
        raise UsageError(what) from missing
    with tempfile.TemporaryDirectory(prefix="advisor-hta-") as folder:
        files = _files([given] if isinstance(given, str | os.PathLike | Trace) else list(given), Path(folder))
        # HTA reads all rows into memory while it is made; the folder is not needed after that.
        return TraceAnalysis(trace_files=files, trace_dir=folder, **options)


def _files(given: list[Given], folder: Path) -> dict[int, str]:
    """One file per rank, absolute, each of which HTA can read."""
    traces = _traces(given)
    if not traces:
        raise InputError("no trace given; pass paths or loaded traces")
    starts = [int(trace.events.start_ns.min()) for trace in traces.values() if len(trace.events)]
    files = {}
    for rank, trace in traces.items():
        files[rank] = str(folder / f"rank{rank}.json.gz")
        # One base for all ranks, because HTA does not add it and aligns ranks by what is left.
        write_json(trace, Path(files[rank]), min(starts, default=0))
    return files


def _traces(given: list[Given]) -> dict[int, Trace]:
    loaded = [item for item in given if isinstance(item, Trace)]
    paths = [item for item in given if not isinstance(item, Trace)]
    traces = {_rank(trace, number): trace for number, trace in enumerate(loaded)}
    if paths:
        from advisor.inputs import jobs

        found = jobs.find(paths)
        if len(found) > 1:
            raise InputError(f"{len(found)} unrelated jobs ({'; '.join(job.name for job in found)}); pass one of them")
        traces |= {one.rank: load(one.profile) for one in found[0].traces}
    if len(traces) < len(loaded):
        raise InputError("two of these traces are of the same rank; pass one per rank")
    return traces


def _rank(trace: Trace, number: int) -> int:
    return trace.meta.rank if trace.meta.rank is not None else number

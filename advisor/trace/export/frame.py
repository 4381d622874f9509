"""A trace as a pandas DataFrame, for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from advisor.trace.category import Category

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from advisor.trace.events import Trace

# Columns of integers whose -1 means "absent": shown as <NA>.
_NULLABLE = (
    *("device", "stream", "correlation", "external_id", "bytes", "blocks", "sequence", "forward_thread"),
    *("python_id", "python_parent"),
)


def to_pandas(trace: Trace) -> pd.DataFrame:
    """One row per complete event, by start.

    start_ns, dur_ns   int64, nanoseconds on the clock of the machine that ran the job (since 1970 where the file says)
    start_us, dur_us   float64, µs from the first event of the file; what plots want
    name, category     text; category is one of advisor.trace.events.Category in lower case (cpu_op, kernel, memcpy …)
    pid, tid, thread   text as in the file; `thread` is the thread's name
    device, stream, correlation, external_id, bytes, blocks, sequence, forward_thread, python_id, python_parent
                       Int64, <NA> if not recorded; `blocks` are thread blocks of a kernel's grid
    dims, dtypes, strides, values
                       JSON text of `Input Dims`, `Input type`, `Input Strides`, `Concrete Inputs`; None if absent
    stack              `Call stack` as in the file, innermost first; None if absent
    device_work        bool: the event is work of a device (kernel, copy, memset)

    `frame.attrs` holds path, rank, world_size and health.
    """
    events = trace.events
    threads = events.threads
    first = int(events.start_ns[0]) if len(events) else 0
    columns: dict[str, object] = {
        "start_ns": events.start_ns,
        "dur_ns": events.dur_ns,
        "start_us": (events.start_ns - first) / 1e3,
        "dur_us": events.dur_ns / 1e3,
        "name": _texts(events.name, events.names),
        "category": _texts(events.category, [kind.name.lower() for kind in Category]),
        "pid": _texts(events.thread, [thread.pid for thread in threads]),
        "tid": _texts(events.thread, [thread.tid for thread in threads]),
        "thread": _texts(events.thread, [thread.name for thread in threads]),
    }
    for name in _NULLABLE:
        values = np.asarray(getattr(events, name), np.int64)
        columns[name] = pd.array(values, dtype="Int64")
        columns[name][values == -1] = pd.NA  # type: ignore[index]
    columns["dims"] = _texts(events.dims, events.dims_table)
    columns["dtypes"] = _texts(events.dtypes, events.dtypes_table)
    columns["strides"] = _texts(events.strides, events.strides_table)
    columns["values"] = _texts(events.values, events.values_table)
    columns["stack"] = _texts(events.stack, events.stack_table)
    columns["device_work"] = trace.device_work
    frame = pd.DataFrame(columns)
    frame.attrs.update(
        path=trace.path,
        rank=trace.meta.rank,
        world_size=trace.meta.world_size,
        health=[f"{item.status}: {item.message}" for item in trace.health],
    )
    return frame


def _texts(codes: npt.NDArray[np.integer], values: Sequence[str]) -> pd.Categorical:
    """Texts as a categorical: a name that stands in a million rows is held once."""
    categories = list(dict.fromkeys(values))
    index = {value: number for number, value in enumerate(categories)}
    remap = np.array([*(index[value] for value in values), -1], np.int64)
    return pd.Categorical.from_codes(remap[codes], categories=pd.Index(categories, dtype=object))

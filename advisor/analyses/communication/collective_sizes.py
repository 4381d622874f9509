"""What each collective carries, and what those of one size take where no rank is late."""

from __future__ import annotations

import functools
import json
from collections import defaultdict

import numpy as np

from advisor.analyses.communication.collective_launches import dims_of, elements, inputs_of, scalar
from advisor.analyses.communication.communication import element_bytes
from advisor.trace.events import Events, Floats, Ints


def least_us(sizes: Floats, took_us: Floats) -> float:
    """µs of all of them if each took as long as the shortest tenth of its size."""
    of_size: dict[float, list[float]] = defaultdict(list)
    for size, us in zip(np.nan_to_num(sizes, nan=-1.0).tolist(), took_us.tolist(), strict=True):
        of_size[size].append(us)
    return sum(len(found) * float(np.quantile(found, 0.1)) for found in of_size.values())


def bytes_of(events: Events, rows: Ints) -> Floats:
    """Bytes of collectives: as their rows state them, else by their shapes; 0 for a barrier, nan where not known."""
    columns = (events.collective, events.name, events.dims, events.dtypes)
    # Nearly all are alike, and a row says no more of its size than these four: each kind is worked out once.
    kinds = list(zip(*(column[rows].tolist() for column in columns), strict=True))
    one_of = dict(zip(kinds, rows.tolist(), strict=True))
    sizes = {kind: _bytes_of_one(events, row) for kind, row in one_of.items()}
    return np.array([sizes[kind] for kind in kinds], np.float64)


def _bytes_of_one(events: Events, row: int) -> float:
    index = int(events.collective[row])
    if index >= 0:
        stated = events.collective_table[index]
        element, number = element_bytes(stated.dtype), max(stated.in_elements, stated.out_elements)
        return float(element * number) if element is not None and number >= 0 else np.nan
    if "barrier" in events.text(row):
        return 0.0
    dtypes = int(events.dtypes[row])
    return _shaped(dims_of(events, row), events.dtypes_table[dtypes] if dtypes >= 0 else "[]")


@functools.lru_cache(maxsize=4096)
def _shaped(dims: str, dtypes: str) -> float:
    """Bytes of inputs of these shapes; nan where not known. Collectives are repeated: each size is worked out once."""
    shapes = [elements(one) for one in inputs_of(dims)] or scalar(dims)
    element = element_bytes(_dtype(dtypes))
    return float(sum(shapes) * element) if shapes and element is not None else np.nan


def _dtype(dtypes: str) -> str:
    try:
        found = json.loads(dtypes)
    except ValueError:
        return ""
    return str(found[0]) if isinstance(found, list) and found else ""

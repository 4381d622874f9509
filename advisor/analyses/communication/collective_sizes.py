"""What each collective carries, and what those of one size take where no rank is late."""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
import numpy.typing as npt

from advisor.analyses.communication.collective_launches import elements, inputs, scalar
from advisor.analyses.communication.communication import element_bytes
from advisor.trace.events import Events

Floats = npt.NDArray[np.float64]


def least_us(sizes: Floats, took_us: Floats) -> float:
    """µs of all of them if each took as long as the shortest tenth of its size."""
    of_size: dict[float, list[float]] = defaultdict(list)
    for size, us in zip(np.nan_to_num(sizes, nan=-1.0).tolist(), took_us.tolist(), strict=True):
        of_size[size].append(us)
    return sum(len(found) * float(np.quantile(found, 0.1)) for found in of_size.values())


def bytes_of(events: Events, row: int) -> float:
    """Bytes of a collective: as its row states them, else by its shapes; 0 for a barrier, nan where not known."""
    index = int(events.collective[row])
    if index >= 0:
        stated = events.collective_table[index]
        element, number = element_bytes(stated.dtype), max(stated.in_elements, stated.out_elements)
        return float(element * number) if element is not None and number >= 0 else np.nan
    if "barrier" in events.text(row):
        return 0.0
    shapes = [elements(one) for one in inputs(events, row)] or scalar(events, row)
    element = element_bytes(_dtype(events, row))
    return float(sum(shapes) * element) if shapes and element is not None else np.nan


def _dtype(events: Events, row: int) -> str:
    index = int(events.dtypes[row])
    try:
        found = json.loads(events.dtypes_table[index]) if index >= 0 else []
    except ValueError:
        return ""
    return str(found[0]) if isinstance(found, list) and found else ""

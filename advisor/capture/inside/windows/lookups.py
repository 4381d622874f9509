"""How long the samples in a batch of token indices are, as the step whose lines are recorded looks them up.

Padding that a data set or a tokenizer did leaves no row in a trace; the indices themselves tell of it.
"""

from __future__ import annotations

from typing import Any

import torch

from ..guards.interrupts import let_through

# More indices than this are not read: reading takes about 50 ns for each, and the step waits.
_MOST_INDICES = 200_000
# Different batches of one step; a model that looks up more of them is no model of one text.
_MOST_BATCHES = 16


def look(module: Any, local: dict[str, Any], found: list[dict[str, int]]) -> None:
    """Adds the batch that an embedding is about to look up. local: the variables of its `forward`. Never raises."""
    try:
        if isinstance(module, torch.nn.Embedding) and len(found) < _MOST_BATCHES:
            batch = padding(local.get("input"))
            if batch is not None:
                found.append(batch)
    except Exception as failure:
        let_through(failure)
        return  # the script's step must not end because of a look at its indices


def padding(indices: Any) -> dict[str, int] | None:
    """samples, length and longest (the longest sample without its padding) of a batch; None where nothing tells.

    Padding is one index that stands at the end of the samples, or at their beginning, and nowhere else. Rows that are
    all alike (positions, kinds of tokens) tell nothing; neither do indices on a device, which would have to wait.
    """
    if type(indices) is not torch.Tensor or indices.dim() != 2 or indices.device.type != "cpu":
        return None
    samples, length = indices.shape
    whole = indices.dtype in (torch.int64, torch.int32)
    if not whole or samples < 2 or length < 2 or samples * length > _MOST_INDICES:
        return None
    rows = indices.tolist()
    if all(row == rows[0] for row in rows):
        return None
    for backwards in (True, False):
        turned = [row[::-1] for row in rows] if backwards else rows
        runs = [_run(row, turned[0][0]) for row in turned]
        if min(runs) and all(turned[0][0] not in row[run:] for row, run in zip(turned, runs, strict=True)):
            return {"samples": samples, "length": length, "longest": length - min(runs)}
        if min(runs):
            return None  # the index stands elsewhere, too: a kind of token, a flag
    return {"samples": samples, "length": length, "longest": length}


def _run(row: list[int], index: int) -> int:
    """How often this index stands at the beginning of the row, one after the other."""
    return next((at for at, one in enumerate(row) if one != index), len(row))

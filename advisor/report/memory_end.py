"""That a script ran out of memory, in a sentence: where, and what held memory then."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.capture.record import OutOfMemory
from advisor.quantities import data_size


def sentence(end: OutOfMemory) -> str:
    """Without a full stop: where memory ran out, what was asked for, and what was held."""
    memory = "GPU memory" if end.device == "cuda" else "host memory"
    where = f" at {end.file}:{end.line} in {end.function}" if end.file else ""
    after = f" after {end.step:,} steps" if end.step else ""
    asked = f", when it requested {data_size(end.tried_bytes)}" if end.tried_bytes else ""
    held = list(_held(end))
    then = f"; {held[0]}" + (f", including {', '.join(held[1:])}" if held[1:] else "") if held else ""
    return f"the script ran out of {memory}{where}{after}{asked}{then}"


def _held(end: OutOfMemory) -> Iterator[str]:
    if end.device == "cuda" and end.allocated_bytes:
        reserved = f" ({data_size(end.reserved_bytes)} reserved)" if end.reserved_bytes else ""
        yield f"tensors on the GPU held {data_size(end.allocated_bytes)}{reserved}"
    elif end.device == "cpu" and end.resident_bytes:
        yield f"the process held {data_size(end.resident_bytes)}"
    kinds = (("weights", end.weights_bytes), ("gradients", end.gradients_bytes), ("optimizer state", end.state_bytes))
    yield from (f"{name} {data_size(count)}" for name, count in kinds if count)
    yield from (f"`{one.name}` in {one.function} {data_size(one.bytes)}" for one in end.variables)

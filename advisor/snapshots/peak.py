"""What held a GPU's memory at the peak of an allocator's history, by the user's line that allocated it.

    torch.cuda.memory._record_memory_history(); ...; torch.cuda.memory._dump_snapshot("snapshot.pickle")

The history is a list of the latest allocations and frees. It is walked backwards from what was allocated when the
snapshot was taken, so that blocks from before its first entry count as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from advisor.errors import InputError

BEFORE = "before the history begins"
NO_FRAMES = "no Python line recorded"
_ACTIVE = ("active_allocated", "active_awaiting_free", "active_pending_free")
_OF_OTHERS = ("site-packages", "dist-packages", "/lib/python", "<")
# More than any snapshot holds; a file that refers to one list many times could grow without bound.
_MOST_BLOCKS = 20_000_000


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes at the peak of blocks that one line allocated."""

    line: str
    bytes: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Peak:
    """One GPU: bytes of blocks that lived at once at most, and at the end; lines sum to peak_bytes.

    reserved_bytes  of the allocator's segments at the end
    entries         of the history
    failed          (line, bytes) of allocations for which memory ran out
    """

    device: int
    peak_bytes: int
    end_bytes: int
    reserved_bytes: int
    entries: int
    lines: tuple[Held, ...]
    failed: tuple[tuple[str, int], ...] = ()


def peaks(snapshot: Any, path: str) -> list[Peak]:
    """The peak on each GPU that allocated anything. Raises InputError for what is no snapshot."""
    try:
        segments, traces = snapshot["segments"], snapshot.get("device_traces", [])
        devices = sorted({segment["device"] for segment in segments} | {at for at, some in enumerate(traces) if some})
        return [_peak(device, segments, traces[device] if device < len(traces) else []) for device in devices]
    except (TypeError, KeyError, AttributeError, ValueError, IndexError) as failure:
        text = f"{path}: not a snapshot of the CUDA allocator; write one with torch.cuda.memory._dump_snapshot()"
        raise InputError(text) from failure


def _peak(device: int, segments: list[Any], history: list[Any]) -> Peak:
    mine = [segment for segment in segments if segment["device"] == device]
    live = dict(_at_end(mine))
    end_bytes = total = sum(size for size, _ in live.values())
    best, best_at = total, len(history)
    for at in range(len(history) - 1, -1, -1):
        total -= _change(history[at])
        if total > best:
            best, best_at = total, at
    # The blocks that live before entry `best_at`: those of the end, with everything since undone.
    for entry in reversed(history[best_at:]):
        change = _change(entry)
        if change > 0:
            live.pop(entry["addr"], None)
        elif change < 0:
            live[entry["addr"]] = (int(entry["size"]), BEFORE)
    for entry in history[:best_at]:
        if _change(entry) > 0 and entry["addr"] in live:
            live[entry["addr"]] = (live[entry["addr"]][0], line_of(entry.get("frames") or ()))
    failed = [(line_of(one.get("frames") or ()), int(one["size"])) for one in history if one["action"] == "oom"]
    reserved = sum(int(segment["total_size"]) for segment in mine)
    return Peak(device, best, end_bytes, reserved, len(history), tuple(_by_line(live)), tuple(failed))


def _change(entry: Any) -> int:
    """Bytes that live more after an entry of the history."""
    action = entry["action"]
    if action == "alloc":
        return int(entry["size"])
    return -int(entry["size"]) if action == "free_completed" else 0


def _at_end(segments: list[Any]) -> Iterator[tuple[int, tuple[int, str]]]:
    """Address -> size and line of the blocks that lived when the snapshot was taken."""
    count = 0
    for segment in segments:
        at = int(segment.get("address", 0))
        for block in segment["blocks"]:
            count += 1
            if count > _MOST_BLOCKS:
                raise ValueError("too many blocks")
            size = int(block["size"])
            address = int(block.get("address", at))
            at = address + size
            if block["state"] in _ACTIVE:
                yield address, (size, line_of(block.get("frames") or ()))


def _by_line(live: dict[int, tuple[int, str]]) -> list[Held]:
    sums: dict[str, tuple[int, int]] = {}
    for size, line in live.values():
        held, blocks = sums.get(line, (0, 0))
        sums[line] = held + size, blocks + 1
    rows = [Held(line, held, blocks) for line, (held, blocks) in sums.items()]
    return sorted(rows, key=lambda row: (-row.bytes, row.line))


def line_of(frames: Any) -> str:
    """The innermost line of the user's code among frames, which are innermost first."""
    python = [frame for frame in frames if str(frame["filename"]).endswith(".py")]
    own = [frame for frame in python if not any(mark in str(frame["filename"]) for mark in _OF_OTHERS)]
    if not python:
        return NO_FRAMES
    frame = (own or python)[0]
    return f"{frame['filename']}:{int(frame['line'])} {frame['name']}"

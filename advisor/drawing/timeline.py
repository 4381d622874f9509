"""A trace drawn as text, for examples of rules, tests and documentation.

    draw('''
        step   [1                 ][2                 ]
        cpu    [D        ][F ]     [D        ][F ]
        gpu 7              [K    ]             [K    ]
        ''', us=100, D=NEXT, K="gemm")

Notation
    A lane is a line: `step` (ProfilerSteps), `cpu` (the main thread), `cpu 2` (another thread), `gpu 7` (stream 7).
    Two lines of one name are the same lane: that is how nested events are drawn.
    A box is an event; its columns are its time, brackets included, `us` microseconds each. Adjacent boxes touch.
    The word in a box names the event through the keyword arguments: a plain string (the event's name) or an `Ev`.
    Unless these say otherwise, F is a layer, B a node of the backward pass, O the optimizer, K and E are kernels: of a
    matrix product, and of work on single elements.
    The k-th op that launches work on the device is linked to the k-th piece of such work, by order of start:
    kernels, copies, memsets and collectives separately. Of nested ops the innermost one launches.
    `Ev(..., launches="")` is an op without device work.
    A drawing without a `gpu` lane is the trace of a machine without a device.

The result is the JSON of a trace file as PyTorch's profiler writes it; it is read by the same reader as real files.
It is drawn at first access: rules have some five hundred examples, and a command that reads a trace uses none.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from advisor.drawing.events import BACKWARD, DEVICES, ELEMENTWISE, FORWARD, GEMM, OPTIMIZER, Ev

Json = dict[str, Any]

_USUAL: dict[str, str | Ev] = {"F": FORWARD, "B": BACKWARD, "O": OPTIMIZER, "K": GEMM, "E": ELEMENTWISE}

_LANE = re.compile(r"\s*(step|cpu|gpu)(?: +(\d+))?\s*(?=\[)")
_BOX = re.compile(r"\[([^\[\]]*)\]")

# Real traces start at the machine's uptime or the epoch, never at zero.
_EPOCH_US = 1_000_000.0
_PID = 1000
# A launch call costs the host 3 to 10 µs on current machines; drawn boxes may be shorter.
_LAUNCH_US = 5.0


class DrawingError(ValueError):
    """A drawing that makes no sense; the message is one line that says where."""


_COPYING = (
    "aten::to",
    "aten::_to_copy",
    "aten::copy_",
    "aten::item",
    "aten::_local_scalar_dense",
    "aten::cuda",
    "aten::cpu",
)
_LAUNCHLESS = ("aten::empty", "aten::view", "aten::as_strided", "aten::t", "aten::detach", "aten::empty_strided")
_CALLS = {
    "kernel": "cudaLaunchKernel",
    "collective": "cudaLaunchKernel",
    "memcpy": "cudaMemcpyAsync",
    "memset": "cudaMemsetAsync",
}


class _Box(Struct, frozen=True):
    """One drawn event: its lane, its word, its time in µs, and the column for messages."""

    lane: str
    number: int
    word: str
    column: int
    start_us: float
    dur_us: float
    ev: Ev

    def slots(self) -> Iterator[_Box]:
        """The equal events of this box."""
        slot = self.dur_us / self.ev.times
        for index in range(self.ev.times):
            start_us = self.start_us + index * slot
            yield _Box(self.lane, self.number, self.word, self.column, start_us, slot * self.ev.fill, self.ev)


class Drawing(Mapping[str, Any]):
    """The JSON of a trace file, drawn at first access, which raises DrawingError (one line) for a wrong drawing."""

    def __init__(self, make: Callable[[], Json]) -> None:
        """make: draws it."""
        self._make = make

    @cached_property
    def _json(self) -> Json:
        return self._make()

    def __getitem__(self, key: str) -> Any:
        return self._json[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._json)

    def __len__(self) -> int:
        return len(self._json)


def draw(
    text: str,
    *,
    us: float = 100,
    device: str | None = None,
    shapes: bool = True,
    world_size: int = 1,
    **names: str | Ev,
) -> Drawing:
    """The drawing as the JSON of a trace file.

    us: microseconds per column. device: "V100", "A100" (the default where a gpu lane is drawn), "H100", "MI300X".
    shapes: whether the profiler recorded shapes. names: the events that the words in the boxes stand for, but for the
    usual ones.
    """
    return Drawing(partial(_drawn, text, names, us=us, device=device, shapes=shapes, world_size=world_size))


def _drawn(
    text: str, names: dict[str, str | Ev], *, us: float, device: str | None, shapes: bool, world_size: int
) -> Json:
    boxes = [slot for box in _boxes(text, us, names) for slot in box.slots()]
    on_device = any(box.lane == "gpu" for box in boxes)
    if device is not None and device not in DEVICES:
        raise DrawingError(f"unknown device '{device}'; known are {', '.join(DEVICES)}")
    events = list(_rows(_innermost(boxes), on_device))
    trace: Json = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, **DEVICES[device or "A100"]}] if on_device else [],
        "record_shapes": int(shapes),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
        "traceEvents": sorted(events, key=lambda event: event["ts"]),
    }
    if world_size > 1:
        backend = "nccl" if on_device else "gloo"
        trace["distributedInfo"] = {"backend": backend, "rank": 0, "world_size": world_size}
    return trace


def _boxes(text: str, us: float, names: dict[str, str | Ev]) -> list[_Box]:
    """The boxes of a drawing, by start; time begins at the leftmost one."""
    found: list[tuple[str, int, str, int, int]] = []
    for line in filter(str.strip, text.splitlines()):
        lane = _LANE.match(line)
        if not lane:
            raise DrawingError(
                f"'{line.strip()[:40]}' is no lane; a lane starts with step, cpu, cpu 2 or gpu 7, then boxes"
            )
        boxes = list(_BOX.finditer(line))
        if re.sub(r"[\s]", "", _BOX.sub("", line[lane.end() :])):
            raise DrawingError(f"the lane '{lane[0].strip()}' has text or a bracket outside its boxes")
        number = int(lane[2] or (7 if lane[1] == "gpu" else 1))
        found += [(lane[1], number, box[1].strip(), box.start(), box.end()) for box in boxes]
    if not found:
        raise DrawingError("the drawing has no boxes")
    origin = min(start for *_, start, _ in found)
    events = {(lane, word): _event(lane, word, names) for lane, _, word, _, _ in found}
    boxes_ = [
        _Box(lane, number, word, start, _EPOCH_US + (start - origin) * us, (end - start) * us, events[lane, word])
        for lane, number, word, start, end in found
    ]
    unused = set(names) - {word for _, _, word, _, _ in found}
    if unused:
        raise DrawingError(f"no box holds {', '.join(sorted(unused))}")
    return sorted(boxes_, key=lambda box: box.start_us)


def _event(lane: str, word: str, names: dict[str, str | Ev]) -> Ev:
    """What the word in a box stands for, with its category and what it launches."""
    if lane == "step":
        return Ev(f"ProfilerStep#{word}", "user_annotation", launches="")
    given = names.get(word) or _USUAL.get(word)
    if given is None:
        raise DrawingError(f'the box [{word}] of lane {lane} has no meaning; pass {word or "a name"}="…"')
    ev = Ev(given) if isinstance(given, str) else given
    if lane == "gpu":
        return replace(ev, cat=ev.cat or ("gpu_memcpy" if ev.name.startswith("Memcpy") else "kernel"), launches="")
    cat = ev.cat or ("python_function" if ".py(" in ev.name else "cpu_op")
    if ev.launches is not None:
        return replace(ev, cat=cat)
    return replace(ev, cat=cat, launches=_launches(ev, cat), implied=True)


def _launches(ev: Ev, cat: str) -> str:
    if cat != "cpu_op" or ev.name in _LAUNCHLESS:
        return ""
    return "memcpy" if ev.name in _COPYING else "kernel"


def _innermost(boxes: list[_Box]) -> list[_Box]:
    """The boxes, with ops that hold another op of their lane launching nothing themselves unless told to."""
    ops: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for box in boxes:
        if box.ev.cat == "cpu_op":
            ops[box.lane, box.number].append((box.start_us, box.dur_us))
    for lane in ops.values():
        lane.sort()
    return [replace(box, ev=replace(box.ev, launches="")) if _holds_op(box, ops) else box for box in boxes]


def _holds_op(box: _Box, ops: dict[tuple[str, int], list[tuple[float, float]]]) -> bool:
    """Whether a shorter op of its lane lies within the box. ops: (start, duration) of each, by lane and by start."""
    lane = ops.get((box.lane, box.number))
    if not (box.ev.implied and box.ev.launches and lane):
        return False
    end = box.start_us + box.dur_us
    for start_us, dur_us in lane[bisect_left(lane, (box.start_us,)) :]:
        if start_us > end:
            return False
        if start_us + dur_us <= end and dur_us < box.dur_us:
            return True
    return False


def _queue(box: _Box) -> str:
    """The launch queue that a piece of device work belongs to."""
    if box.ev.cat in ("gpu_memcpy", "gpu_memset"):
        return box.ev.cat.removeprefix("gpu_")
    return "collective" if "nccl" in box.ev.name.lower() else "kernel"


def _rows(boxes: list[_Box], on_device: bool) -> Iterator[Json]:
    """Every row of the trace, host rows first; k-th launch and k-th work of a queue share a correlation."""
    work: dict[str, list[_Box]] = defaultdict(list)
    for box in sorted(boxes, key=lambda box: box.start_us):
        if box.lane == "gpu":
            work[_queue(box)].append(box)
    launched: dict[str, int] = defaultdict(int)
    correlation_of: dict[int, int] = {}
    host = [box for box in sorted(boxes, key=lambda box: box.start_us) if box.lane != "gpu"]
    for correlation, box in enumerate(host, start=1):
        yield _host_row(box, correlation)
        if not (on_device and box.ev.launches):
            continue
        queue, position = work[box.ev.launches], launched[box.ev.launches]
        launched[box.ev.launches] += 1
        if position < len(queue):
            _check_order(box, queue[position])
            correlation_of[id(queue[position])] = correlation
        if position < len(queue) or box.ev.blocks:
            yield from _launch_rows(box, correlation)
    for queue in work.values():
        for box in queue:
            yield _device_row(box, correlation_of.get(id(box)))


def _check_order(launch: _Box, work: _Box) -> None:
    if work.start_us < launch.start_us:
        raise DrawingError(
            f"[{work.word}] at column {work.column} starts before its launch [{launch.word}] at column {launch.column}"
        )


def _row(name: str, cat: str, tid: int, start_us: float, dur_us: float, args: Json) -> Json:
    times = {"ts": round(start_us, 3), "dur": round(dur_us, 3)}
    return {"ph": "X", "cat": cat, "name": name, "pid": _PID, "tid": tid, **times, "args": args}


def _host_row(box: _Box, external_id: int) -> Json:
    args: Json = {"External id": external_id}
    if box.ev.dims is not None:
        args["Input Dims"] = box.ev.dims
    if box.ev.dtypes is not None:
        args["Input type"] = box.ev.dtypes
    if box.ev.cat == "python_function":
        args = {"Python id": external_id, "Python parent id": None}
    return _row(box.ev.name, box.ev.cat, _PID + box.number - 1, box.start_us, box.dur_us, args | box.ev.args)


def _launch_rows(box: _Box, correlation: int) -> Iterator[Json]:
    """The runtime calls inside an op: its launch and, where it blocks, the wait until the box ends."""
    tid, call_us = _PID + box.number - 1, min(_LAUNCH_US, box.dur_us / 2)
    args = {"External id": correlation, "correlation": correlation}
    yield _row(_CALLS[box.ev.launches or "kernel"], "cuda_runtime", tid, box.start_us, call_us, args)
    if box.ev.blocks:
        wait = {"External id": correlation}
        yield _row("cudaStreamSynchronize", "cuda_runtime", tid, box.start_us + call_us, box.dur_us - call_us, wait)


def _device_row(box: _Box, correlation: int | None) -> Json:
    args: Json = {"device": 0, "context": 1, "stream": box.number}
    if correlation is not None:
        args |= {"correlation": correlation, "External id": correlation}
    if box.ev.bytes is not None:
        args["bytes"] = box.ev.bytes
    row = _row(box.ev.name, box.ev.cat, box.number, box.start_us, box.dur_us, args | box.ev.args)
    return row | {"pid": 0}

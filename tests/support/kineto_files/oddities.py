"""Traces whose text is sound and whose rows are odd."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kineto_files.dialects import HEAD, Row, Variant, replaced, rows, step_rows, text


def _with(change: Callable[[list[Row]], object], **more: Any) -> bytes:
    made = rows()
    change(made)
    return text(made, **more).encode()


def _set(index: int, **fields: Any) -> bytes:
    return _with(lambda made: made[index].update(fields))


def _without(index: int, *keys: str) -> bytes:
    return _with(lambda made: [made[index].pop(key) for key in keys])


def oddities() -> Iterator[Variant]:
    """Event-level oddities (27-48). Index 1 is the first op, 2 its launch, 4 its kernel, 6 its copy."""
    no_base = {key: value for key, value in HEAD.items() if key != "baseTimeNanoseconds"}
    yield Variant("27", "integer µs since 1970", text(rows(start=1_623_142_623_460_111), no_base).encode())
    yield Variant("27", "float µs since 1970", _absolute_floats())
    yield Variant(
        "27",
        "numbers as text",
        text(
            [{**row, "ts": str(row["ts"]), **({"dur": str(row["dur"])} if "dur" in row else {})} for row in rows()]
        ).encode(),
    )
    yield Variant(
        "28", "displayTimeUnit ns", replaced('"record_shapes": 1,', '"displayTimeUnit": "ns", "record_shapes": 1,')
    )
    yield Variant("29", "no dur", _without(4, "dur"), "repaired", health=("trace-rows",))
    yield Variant("29", "no cat", _without(1, "cat"))
    yield Variant("29", "no args", _without(4, "args"))
    yield Variant("29", "no name", _without(1, "name"))
    yield Variant("29", "null args", _set(4, args=None))
    yield Variant("29", "null name and cat", _set(1, name=None, cat=None))
    yield Variant("29", "no ts", _without(1, "ts"), "repaired", lost=1, health=("trace-rows",))
    yield Variant("30", "negative dur", _set(4, dur=-5), "repaired", health=("trace-rows",))
    yield Variant("30", "zero dur", _set(4, dur=0))
    yield Variant("30", "start and end at 0", _set(4, ts=0, dur=0))
    yield Variant("30", "dur beyond all times", _set(4, dur=1e300), "repaired", health=("trace-rows",))
    yield Variant("31", "negative ts", _set(1, ts=-17.5))
    yield Variant("32", "out of order", _with(lambda made: made.reverse()))
    yield Variant("33", "overlap on one stream", _set(6, ts=1040.0, dur=20))
    yield Variant("34", "begin and end pairs", _pairs())
    yield Variant(
        "34",
        "unmatched end",
        _with(lambda made: made.insert(0, {"ph": "E", "pid": 1, "tid": 1, "ts": 5})),
        "repaired",
        health=("trace-rows",),
    )
    yield Variant(
        "34",
        "unmatched begin",
        _with(lambda made: made.insert(0, {"ph": "B", "name": "b", "pid": 1, "tid": 1, "ts": 5})),
        "repaired",
        health=("trace-rows",),
    )
    yield Variant(
        "34",
        "async, counters, instants",
        _with(
            lambda made: made.extend(
                [{"ph": p, "name": "n", "cat": "c", "id": 1, "pid": 1, "tid": 1, "ts": 5} for p in "benCPI"]
            )
        ),
    )
    yield Variant(
        "35",
        "odd pid and tid",
        _with(
            lambda made: [
                made[i].update(pid=p, tid=t)
                for i, (p, t) in enumerate([("Spans", ""), (-1, 0), (2**40, "GPU 0 Counters"), (1.5, None)])
            ]
        ),
    )
    yield Variant("36", "no steps", text([row for row in rows() if "ProfilerStep" not in row["name"]]).encode())
    yield Variant("36", "one step", text(rows(1)).encode())
    yield Variant(
        "36",
        "step numbers with gaps, windows apart",
        text(rows(2) + [row for at in (3, 9) for row in step_rows(at, 9000 + 110 * at)]).encode(),
        check=lambda t: sum(name.startswith("ProfilerStep#") for name in t.events.names) == 4,
    )
    yield Variant(
        "37",
        "own step markers",
        _with(
            lambda made: [
                row.update(name=row["name"].replace("ProfilerStep#", "iteration "))
                for row in made
                if "ProfilerStep" in row["name"]
            ]
        ),
    )
    yield Variant(
        "38",
        "kernel without launch, 421 kernels of one launch",
        _with(
            lambda made: made.extend(
                [
                    {**made[4], "ts": 2000 + i, "dur": 0.5, "args": {**made[4]["args"], "correlation": 1}}
                    for i in range(421)
                ]
                + [{**made[4], "args": {"device": 0, "stream": 9, "correlation": None}}]
            )
        ),
    )
    yield Variant("39", "arrows without an end", text([row for row in rows() if row["ph"] != "f"]).encode())
    yield Variant("39", "arrows of one id", _with(lambda made: [row.update(id=1) for row in made if row["ph"] in "sf"]))
    yield Variant("40", "only CPU events", text([row for row in rows() if row.get("pid") != 0]).encode())
    yield Variant("40", "only GPU events", text([row for row in rows() if row.get("pid") == 0]).encode())
    yield Variant(
        "41",
        "rank as text",
        text(rows(), {**HEAD, "distributedInfo": {"rank": "1", "world_size": "2"}}).encode(),
        check=lambda t: t.meta.rank == 1,
    )
    yield Variant(
        "41",
        "distributedInfo without rank",
        text(rows(), {**HEAD, "distributedInfo": {"backend": "nccl"}}).encode(),
        check=lambda t: t.meta.rank is None,
    )
    yield Variant(
        "42",
        "keys of other tools",
        text(
            rows(), {"metadata": {"errors": {}, "traceEventsX": []}, **HEAD, "roctracer_version": 4.1, "tw_job": "x"}
        ).encode(),
    )
    yield Variant(
        "43",
        "odd shapes",
        _set(
            1,
            args={
                "Input Dims": [[[2, 2], [3]], "s0", [], None],
                "Input type": "repr [",
                "Concrete Inputs": ["", "[1, 2"],
            },
        ),
    )
    yield Variant(
        "44",
        "numbers as text in args",
        _set(4, args={"device": "0", "stream": "7", "correlation": "1", "grid": ["1", 2, 3]}),
        check=lambda t: 7 in t.events.stream,
    )
    yield Variant(
        "45",
        "long and strange names",
        _set(1, name='<b>&"é😀_ZN2at' + "x" * 3000),
        check=lambda t: max(map(len, t.events.names)) > 3000,
    )
    yield Variant(
        "46",
        "overlay of another tool",
        _with(lambda made: [row.setdefault("args", {}).update(critical=1) for row in made]),
    )
    yield Variant(
        "47",
        "marks of the recording",
        _with(lambda made: made.append({"ph": "i", "s": "g", "name": "Iteration Start: PyTorch Profiler", "ts": 999})),
        check=lambda t: not t.device_work[t.events.named("PyTorch Profiler")].any(),
    )
    yield Variant(
        "48",
        "thousands of memory rows",
        _with(lambda made: made.extend([next(row for row in made if row["name"] == "[memory]")] * 28_010)),
        check=lambda t: len(t.memory.time_ns) == 28_016,
    )
    yield Variant(
        "33",
        "a list of objects in args",
        _set(1, args={"External id": 1, "inputs": [{"name": "a", "v": 1}, {"name": "b", "v": 2}]}),
    )


def _absolute_floats() -> bytes:
    """µs since 1970 with three decimals: more digits than a float holds."""
    source = text(rows(), {key: value for key, value in HEAD.items() if key != "baseTimeNanoseconds"})
    for row in rows():
        source = source.replace(
            f'"ts": {row["ts"]}', f'"ts": 171219549551{int(row["ts"]):04d}.{int(row["ts"]) % 1000:03d}'
        )
    return source.encode()


def _pairs() -> bytes:
    made: list[Row] = []
    for row in rows():
        if row["ph"] == "X":
            made.append({**row, "ph": "B"})
            made.append({"ph": "E", "pid": row["pid"], "tid": row["tid"], "ts": row["ts"] + row["dur"]})
        else:
            made.append(row)
    # On each thread the last one begun ends first, as the format wants it.
    made.sort(key=lambda row: (row["ts"], row["ph"] != "E"))
    return text(made).encode()

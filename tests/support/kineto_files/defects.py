"""Traces whose text is broken: characters, quotes, numbers, ends."""

from __future__ import annotations

from collections.abc import Iterator

from kineto_files.dialects import BASE_NS, Variant, good, replaced


def texts() -> Iterator[Variant]:
    """Text-level defects (15-26)."""
    name = '"aten::linear"'
    yield Variant("15", "control characters in a name", replaced(name, '"aten::\x01lin\near\t"'))
    yield Variant("16", "quotes in a name", replaced(name, '"aten::"linear""'), "repaired", health=("trace-repaired",))
    yield Variant(
        "16",
        "quoted file in a name",
        replaced(name, '"Torch-Compiled Region: "a.py", line 3"'),
        "repaired",
        health=("trace-repaired",),
    )
    yield Variant(
        "17", "Windows path", replaced(name, '"C:\\code\\_x\\user.py(3): f"'), "repaired", health=("trace-repaired",)
    )
    yield Variant(
        "17",
        "valid escapes beside bad ones",
        replaced(name, '"a\\"b\\c\\\\d\\u0041"'),
        "repaired",
        health=("trace-repaired",),
        check=lambda t: 'a"b\\c\\dA' in t.events.names,
    )
    yield Variant(
        "18",
        "key without its first quote",
        replaced('"tid": 77, "ts": 1005.0', 'tid": 77, "ts": 1005.0'),
        "repaired",
        health=("trace-repaired",),
    )
    yield Variant(
        "19", "bare N/A", replaced('"correlation": 1,', '"correlation": N/A,'), "repaired", health=("trace-repaired",)
    )
    yield Variant(
        "20",
        "nan and inf",
        replaced('"External id": 1,', '"x": nan, "y": -inf, "External id": 1,'),
        "repaired",
        health=("trace-repaired",),
    )
    yield Variant(
        "20",
        "NaN and Infinity",
        replaced('"External id": 1,', '"x": NaN, "y": -Infinity, "z": 1e999, "External id": 1,'),
    )
    yield Variant(
        "20",
        "huge exponent as a time",
        replaced('"ts": 1005.0', '"ts": 1e999999999'),
        "whole",
        lost=1,
        health=("trace-rows",),
    )
    yield Variant(
        "21",
        "call stack without quotes",
        replaced('"External id": 1,', '"Call stack": a.py(3): f;b.py(4): <module>, "External id": 1,'),
        "repaired",
        health=("trace-repaired",),
    )
    yield Variant(
        "22",
        "comma before a brace",
        replaced('"cbid": 211, "correlation": 1}', '"cbid": 211, "correlation": 1, }'),
        "repaired",
        health=("trace-repaired",),
    )
    yield Variant("22", "two commas", replaced('"cbid": 211,', '"cbid": 211,,'), "repaired", health=("trace-repaired",))
    yield Variant(
        "23",
        "log lines in the tail",
        good()
        .replace('"traceName": "t.json"', '"INFO": ["INFO:2026 "quoted" x"],\n "baseTimeNanoseconds": 5')
        .replace(f'  "baseTimeNanoseconds": {BASE_NS},\n', "")
        .encode(),
        "repaired",
        health=("trace-head",),
        check=lambda t: t.events.start_ns.min() == 5 + 950_000,
    )
    yield Variant(
        "23",
        "log lines in the head",
        replaced('"record_shapes": 1,', '"WARNING": ["x "y" z", "a\\b"],\n  "record_shapes": 1,'),
        "repaired",
        health=("trace-head",),
        check=lambda t: t.meta.rank == 1 and t.meta.world_size == 2,
    )
    yield Variant(
        "24",
        "distributedInfo twice",
        replaced('"record_shapes": 1,', '"distributedInfo": {"nccl_version": "2.2"}, "record_shapes": 1,'),
        check=lambda t: t.meta.rank == 1,
    )
    yield Variant(
        "25",
        "integers beyond int64",
        replaced('"External id": 1,', '"Comms Id": 99999999999999999999999, "External id": 1,'),
    )
    yield Variant(
        "25",
        "an id beyond 2**53",
        replaced('"correlation": 1,', '"correlation": 9007199254740993,'),
        check=lambda t: 9007199254740993 in t.events.correlation,
    )
    yield Variant(
        "25", "an integer of 5,000 digits", replaced('"correlation": 1,', f'"correlation": {"9" * 5000},'), "some"
    )
    yield Variant(
        "26",
        "lone surrogate",
        replaced(name, '"aten::\\ud800linear"'),
        check=lambda t: bool("".join(t.events.names).encode()),
    )

"""A real trace repeated to any size: the same rows again and again, each time later and with numbers of their own.

    python tests/benchmarks/reading/repeated.py TRACE[.gz] OUT.json MEGABYTES

What lies between the start of the first `ProfilerStep` row and the end of the last is repeated as text, in Kineto's own
layout; times, correlations, external ids, sequence numbers, flow ids and numbers of steps move on with each repetition.
"""

from __future__ import annotations

import gzip
import re
import sys
from pathlib import Path

_ROW = re.compile(r'(?<=\n)  \{\n    "ph": .*?\n  \}(?=,\n|\n|$)', re.DOTALL)
_TS = re.compile(r'"ts": (\d+)(\.\d+)?')
_DUR = re.compile(r'"dur": (\d+)')
_STEP = re.compile(r'"name": "ProfilerStep#?(\d+)"')
_MOVING = re.compile(
    r'("ts": |"correlation": |"External id": |"Ev Idx": |"Sequence number": |"ph": "[sft]", "id": |ProfilerStep#)(\d+)'
)
_CPU = ("cpu_op", "Operator", "user_annotation", "cuda_runtime", "Runtime", "python_function")


def write(source: Path, path: Path, megabytes: float) -> tuple[int, int]:
    """Writes about so many decimal megabytes; returns the exact bytes and how often the trace was repeated."""
    packed = source.read_bytes()
    text = (gzip.decompress(packed) if source.suffix == ".gz" else packed).decode("utf-8", "replace")
    head, _, body = text.partition('"traceEvents": [')
    rows = _ROW.findall(body)
    start, end, steps = _window(rows)
    other = [row for row in rows if '"ph": "M"' in row]
    kept = [row for row in rows if '"ph": "M"' not in row and _TS.search(row) and start <= _ts(row) < end]
    pieces = _MOVING.split(",\n".join(kept) + ",\n")
    texts, keys = pieces[0::3], pieces[1::3]
    numbers = [int(number) for number in pieces[2::3]]
    most = {key: 1 + max(n for k, n in zip(keys, numbers, strict=True) if k == key) for key in set(keys)}
    most['"ts": '], most["ProfilerStep#"] = end - start, steps
    by = [most[key] for key in keys]
    written = times = 0
    with path.open("wb") as stream:
        written += stream.write(f'{head}"traceEvents": [\n'.encode())
        written += stream.write("".join(f"{row},\n" for row in other).encode())
        while written < megabytes * 1e6:
            moved = (f"{k}{n + times * step}{t}" for k, n, step, t in zip(keys, numbers, by, texts[1:], strict=True))
            written += stream.write((texts[0] + "".join(moved)).encode())
            times += 1
        last = f'  {{\n    "name": "process_name", "ph": "M", "ts": {start}, "pid": 0, "tid": 0,\n    "args": {{\n'
        written += stream.write((last + '      "name": "python"\n    }\n  }\n  ]\n}\n').encode())
    return written, times


def _window(rows: list[str]) -> tuple[int, int, int]:
    """Start of the first step, end of the last, and how many there are."""
    steps = [row for row in rows if _STEP.search(row) and any(f'"cat": "{cat}"' in row for cat in _CPU)]
    ends = [_ts(row) + int(found[1]) for row in steps if (found := _DUR.search(row))]
    return min(map(_ts, steps)), max(ends) + 1, len({found[1] for row in steps if (found := _STEP.search(row))})


def _ts(row: str) -> int:
    found = _TS.search(row)
    return int(found[1]) if found else 0


if __name__ == "__main__":
    size, times = write(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
    sys.stdout.write(f"{size} bytes, repeated {times} times\n")

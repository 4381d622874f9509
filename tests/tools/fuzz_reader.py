"""Feeds the reader damaged traces: it must read them or refuse them in one line, never crash, hang or invent time.

With the extension and without it, it must come to the same.

    python tests/tools/fuzz_reader.py 200000          # inputs; prints a line every 10,000, and the seed that fails
    python tests/tools/fuzz_reader.py 1 --seed 4711   # one input again

Inputs are the generated variants, other layouts, and (where they lie beside the checkout) slices of real
traces, mutated by bytes, blocks, brackets, numbers and splices. A seeded part runs in the suite.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import kineto_files.dialects as made
from kineto_files.variants import VARIANTS

from advisor.errors import InputError
from advisor.trace import intervals
from advisor.trace.events import Trace
from advisor.trace.read import rows
from advisor.trace.read.load import load

REAL = Path(__file__).parents[2].parent / "shared" / "traces"
# Inputs of this size take some ms, and the long ones below some 100 ms.
HANG_SECONDS = 10
TOKENS = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\n",
    b"\0",
    b"\xff",
    b"null",
    b"-1",
    b"1e999",
    b"NaN",
    b'"ph": "X"',
]
NUMBERS = [
    b"0",
    b"-1",
    b"9007199254740993",
    b"99999999999999999999999",
    b"1e308",
    b"-0.0005",
    b'"7"',
    b"true",
    b"[]",
    b"{}",
]


def corpus(limit: int = 20_000) -> list[bytes]:
    """The sound and odd inputs that mutations start from."""
    inputs = [variant.data[:limit] for variant in VARIANTS]
    inputs += [made.text(made.rows(era="1.8"), {}).encode(), json.dumps({"traceEvents": made.rows()}).encode()]
    for path in sorted(REAL.rglob("*.gz"))[:8] if REAL.is_dir() else ():
        with gzip.open(path) as file:
            text = file.read(2_000_000)
        at = text.find(b'"traceEvents"')
        inputs.append(text[:400] + b"\n" + text[at : at + 8_000] if at > 400 else text[at - 2 : at + 8_000])
        inputs.append(text[: at + 30] + text[-8_000:])
    return inputs


def mutated(rng: random.Random, inputs: list[bytes]) -> bytes:
    """One damaged input."""
    data = bytearray(rng.choice(inputs))
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(8)
        if kind == 0 and data:
            data[at - 1] = rng.randrange(256)
        elif kind == 1:
            data[at:at] = rng.choice(TOKENS)
        elif kind == 2:
            del data[at : at + rng.choice((1, 3, 40, 2000))]
        elif kind == 3:
            data[at:at] = data[at : at + rng.choice((5, 300, 3000))]
        elif kind == 4:
            del data[at:]
        elif kind == 5:
            other = rng.choice(inputs)
            start = rng.randrange(len(other) + 1)
            data[at:at] = other[start : start + rng.choice((10, 500, 5000))]
        elif kind == 6:
            _number(data, rng)
        else:
            data[at:at] = rng.choice(TOKENS) * rng.choice((2, 50, 3000))
    return gzip.compress(bytes(data), 1) if rng.random() < 0.05 else bytes(data)


def _number(data: bytearray, rng: random.Random) -> None:
    """Puts a hostile value behind some key."""
    found = data.find(b'": ', rng.randrange(len(data) + 1))
    if found >= 0:
        end = min((e for e in (data.find(b",", found), data.find(b"}", found)) if e >= 0), default=found + 3)
        data[found + 3 : end] = rng.choice(NUMBERS)


def check(path: Path) -> str:
    """Reads one input; what it came to. Raises AssertionError where the reader says nonsense."""
    trace = _read(path)
    with mock.patch.object(rows, "scanner_of", return_value=None):
        other = _read(path)
    if isinstance(trace, str) or isinstance(other, str):
        assert trace == other, "refused by one of the two ways only"
        assert "\n" not in str(trace), "a refusal of more than one line"
        return "refused"
    assert _shown(trace) == _shown(other), "the two ways give different events"
    return _sound(trace)


def _read(path: Path) -> Trace | str:
    """The trace, or why it was refused."""
    try:
        return load(path)
    except InputError as refusal:
        return str(refusal)


def _shown(trace: Trace) -> object:
    """Events and what is said of them. Not their shapes: the path of damaged events writes such texts anew."""
    events, memory = trace.events, trace.memory
    names = [events.names[index] for index in events.name.tolist()]
    threads = [events.threads[index] for index in events.thread.tolist()]
    columns = [events.start_ns, events.dur_ns, events.category, events.stream, events.correlation, events.external_id]
    columns += [events.bytes, events.blocks, events.sequence, events.python_id, memory.time_ns, memory.bytes]
    return names, threads, [column.tolist() for column in columns], trace.health, trace.meta


def _sound(trace: Trace) -> str:
    events = trace.events
    assert (events.dur_ns >= 0).all()
    assert (np.diff(events.start_ns) >= 0).all()
    for ids, table in ((events.name, events.names), (events.thread, events.threads), (events.dims, events.dims_table)):
        assert len(ids) == 0 or (ids.min() >= -1 and ids.max() < len(table))
    "".join(events.names).encode()
    if len(events):
        work = trace.device_work
        busy = intervals.union(events.start_ns[work], events.end_ns[work])
        window = np.array([[events.start_ns.min(), max(events.end_ns.max(), events.start_ns.min() + 1)]])
        share = intervals.total(intervals.intersect(busy, window)) / intervals.total(window)
        assert 0 <= share <= 1, share
    return "damaged" if trace.health else "whole"


def _hang(*_: object) -> None:
    raise TimeoutError(f"more than {HANG_SECONDS} CPU s for one input")


def long_inputs(size: int = 3_000_000) -> list[bytes]:
    """Texts that make careless patterns and loops take the square of their length."""
    start, end = made.good().encode().split(b'"traceEvents": [', 1)
    start += b'"traceEvents": ['
    parts = [
        b" ",
        b"]",
        b"}]",
        b"}",
        b"{",
        b'"',
        b"\\",
        b"},",
        b",",
        b"[",
        b"}  ",
        b'{"ph": ',
        b'{"a": b, ',
        b'{"ph": "X", "name": "',
        b"\0",
    ]
    return [start + b'\n{"ph": "X", ' + part * (size // len(part)) + end for part in parts]


def run(count: int, seed: int, folder: Path, inputs: list[bytes]) -> dict[str, int]:
    """Reads `count` inputs of consecutive seeds; how many came to what. Stops at the first failure."""
    signal.signal(signal.SIGVTALRM, _hang)
    path, seen = folder / "fuzz.json", {"whole": 0, "damaged": 0, "refused": 0}
    for number in range(seed, seed + count):
        path.write_bytes(mutated(random.Random(number), inputs))
        # Of CPU time, so that a busy machine is not taken for a hang.
        signal.setitimer(signal.ITIMER_VIRTUAL, HANG_SECONDS)
        try:
            seen[check(path)] += 1
        except BaseException:
            sys.stderr.write(f"seed {number} fails; input kept at {path}\n")
            raise
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if (number - seed + 1) % 10_000 == 0:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            sys.stdout.write(f"{number - seed + 1} inputs, {seen}, peak {peak} MB\n")
            sys.stdout.flush()
    return seen


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    started = time.monotonic()
    seen = run(
        args.count,
        args.seed,
        Path(tempfile.mkdtemp(prefix="fuzz-reader-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)),
        corpus(),
    )
    sys.stdout.write(f"{sum(seen.values())} inputs in {time.monotonic() - started:.0f} s: {seen}\n")


if __name__ == "__main__":
    main()

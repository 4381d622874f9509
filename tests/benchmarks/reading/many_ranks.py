# ruff: noqa: E501 - the rows of the format stand on one line each, as they are written
"""Jobs of many ranks with a known truth: what analyzing them costs, and whether it finds who is late.

    python tests/benchmarks/reading/many_ranks.py --jobs 64x20 512x2 --forms 1024 --workers 1 2

Each job is a loop of transformer-like layers (rows as in made_traces.py) with one all-reduce a step. The clock of every
rank is off by up to a second. On one rank each batch comes LATE_MS late, and all others wait for it in the all-reduce.
Ranks run on nodes of NODE; with `--pages` the kernels of the second of several take SLOW_MS longer, and each node sums
over its ranks at the start of a step, which takes the fourth LINK_MS longer. Process groups describe two pipeline stages,
tensor parallelism within a node, and data parallelism over nodes (for the layout alone).
`--pages` measures the page in place of the memory: its bytes, and whether it names the late rank and the slow node.
`--dask TIMES` compares one and two local processes with two workers of dask (with tests/support on PYTHONPATH).
`--forms N` reduces one of each kind of such ranks and multiplies them, with clocks of their own. Prints a Markdown table: CPU seconds
and wall time of the whole process tree, the peak of its memory (proportional set size) and of the command's own process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from made_traces import HEAD, OPS, Clock, kernel_name, rows_of_op, us
from msgspec.structs import replace
from reading import SAMPLE_SECONDS, _descendants, _pss, _started, measured

LATE_MS, SLOW_MS, LINK_MS, BETWEEN_MS, SENDS_MS = 40, 20, 10, 1, 2
NODE, STAGES, SLOW_NODE, LINK_NODE = 8, 2, 1, 3
STEPS = 8
# Bytes of text that a layer takes, forward and backward.
_LAYER_BYTES = 4_300
_BASE_NS = 1_759_104_000_000_000_000
_NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


# What the batches, the kernels and the links within the node of a rank take longer, ms; -1 of links: it uses none.
Kind = tuple[int, int, int]


def body(megabytes: float, kind: Kind) -> str:
    """The rows of a rank: what it takes longer, it waits less for the late one."""
    rng = random.Random(7)
    count = max(int(megabytes * 1e6 / STEPS / _LAYER_BYTES), 4)
    layers = [
        (rng.choice(OPS), kernel_name(rng), str([[rng.randrange(1, 64), rng.choice((512, 1024))], [1024, 4096], []]))
        for _ in range(count)
    ]
    clock, parts = Clock(), []
    for number in range(STEPS):
        parts += _step(clock, random.Random(number), layers, number, kind)
    return "".join(parts)


def _step(
    clock: Clock, rng: random.Random, layers: list[tuple[str, str, str]], number: int, kind: Kind
) -> Iterator[str]:
    start, (fetch_ms, compute_ms, link_ms) = clock.host, kind
    if link_ms >= 0:
        arrives = start + 20_000
        clock.host = arrives + (SENDS_MS + link_ms) * 1_000_000
        yield from _all_reduce(clock, arrives, clock.host, number, within=True)
    fetch = 100_000 + fetch_ms * 1_000_000
    yield _row(
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", clock.host, fetch, clock
    )
    clock.host = clock.device = clock.host + fetch
    for op, kernel, dims in layers:
        yield from rows_of_op(clock, rng, op, kernel, dims, 4001)
    for op, kernel, dims in reversed(layers):
        yield from rows_of_op(clock, rng, f"{op}_backward", kernel, dims, 4077)
    if compute_ms:
        clock.host = clock.device = max(clock.host, clock.device)
        yield from _kernel(clock, compute_ms * 1_000_000)
    arrives = max(clock.host, clock.device) + 20_000
    ends = arrives + (SENDS_MS + LATE_MS - fetch_ms - compute_ms - max(link_ms, 0)) * 1_000_000
    yield from _all_reduce(clock, arrives, ends, number)
    yield _row(f"ProfilerStep#{number}", "user_annotation", start, ends - start, clock)
    clock.host = ends + BETWEEN_MS * 1_000_000


def _row(name: str, cat: str, start: int, dur: int, clock: Clock) -> str:
    clock.index += 1
    return (
        f'  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": 4001, "tid": 4001,\n    "ts": {us(start)}, '
        f'"dur": {us(dur)},\n    "args": {{\n      "External id": {clock.external}, "Ev Idx": {clock.index}\n    }}\n  }},\n'
    )


def _kernel(clock: Clock, dur: int) -> Iterator[str]:
    """The part of a step that a slow device takes longer."""
    clock.correlation += 1
    clock.external += 1
    yield (
        f'  {{\n    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4001, "tid": 4077,\n'
        f'    "ts": {us(clock.host)}, "dur": {us(5_000)},\n    "args": {{\n      "External id": {clock.external}, '
        f'"cbid": 211, "correlation": {clock.correlation}\n    }}\n  }},\n'
        f'  {{\n    "ph": "X", "cat": "kernel", "name": "throttled_gemm", "pid": 0, "tid": 7,\n'
        f'    "ts": {us(clock.host + 5_000)}, "dur": {us(dur)},\n    "args": {{\n      "External id": {clock.external}, '
        f'"device": 0, "context": 1, "stream": 7, "correlation": {clock.correlation}\n    }}\n  }},\n'
    )
    clock.host = clock.device = clock.host + 5_000 + dur


def _all_reduce(clock: Clock, arrives: int, ends: int, number: int, within: bool = False) -> Iterator[str]:
    size, name, what = ("NODE", "NODEGROUP", "mesh_tp") if within else ("WORLD", "0", "default_pg")
    clock.correlation += 1
    clock.external += 1
    yield (
        f'  {{\n    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "pid": 4001, "tid": 4077,\n'
        f'    "ts": {us(arrives - 10_000)}, "dur": {us(5_000)},\n    "args": {{\n      "External id": {clock.external}, '
        f'"cbid": 430, "correlation": {clock.correlation}\n    }}\n  }},\n'
        f'  {{\n    "ph": "X", "cat": "kernel", "name": "{_NCCL}", "pid": 0, "tid": 16,\n'
        f'    "ts": {us(arrives)}, "dur": {us(ends - arrives)},\n    "args": {{\n      "External id": {clock.external}, '
        f'"device": 0, "context": 1, "stream": 16, "correlation": {clock.correlation}, "Collective name": "allreduce", '
        f'"In msg nelems": 25000000, "Out msg nelems": 25000000, "Group size": {size}, "dtype": "BFloat16", '
        f'"Process Group Name": "{name}", "Process Group Description": "{what}", "Seq": {number}\n    }}\n  }},\n'
    )


def late_rank(ranks: int) -> int:
    """The rank whose batches come late; on another node than the slow one, where there are several."""
    return ranks * 2 // 3


def slow_ranks(ranks: int) -> range:
    """The ranks of the slow node, none where there are fewer than three nodes."""
    return range(SLOW_NODE * NODE, (SLOW_NODE + 1) * NODE) if ranks >= 3 * NODE else range(0)


def link_ranks(ranks: int) -> range:
    """The ranks of the node whose links are slow, none where there are fewer than four nodes."""
    return range(LINK_NODE * NODE, (LINK_NODE + 1) * NODE) if ranks >= 4 * NODE else range(0)


def groups(rank: int, ranks: int) -> list[dict[str, object]]:
    """`pg_config` of a rank: (stage, data, tensor) with tensor innermost, as torch writes it."""
    sizes = {"pp": STAGES, "dp": ranks // STAGES // NODE, "tp": NODE}
    made = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": ranks, "ranks": list(range(ranks))}]
    inner = ranks
    for number, (name, size) in enumerate(sizes.items(), 1):
        inner //= max(size, 1)
        if size > 1 and ranks % (STAGES * NODE) == 0:
            first = rank - rank // inner % size * inner
            members = list(range(first, first + size * inner, inner))
            named = f"tp{first}" if name == "tp" else str(number)
            made.append({"pg_name": named, "pg_desc": f"mesh_{name}", "pg_size": size, "ranks": members})
    return made


def trace_name(rank: int, ns: int) -> str:
    """The name that torch.profiler.tensorboard_trace_handler gives a trace."""
    return f"node{rank // NODE}_{4000 + rank}.{ns}.pt.trace.json"


def kind_of_rank(rank: int, ranks: int, *, slow: bool) -> Kind:
    """What a rank takes longer."""
    links = -1 if not slow else LINK_MS if rank in link_ranks(ranks) else 0
    return (LATE_MS if rank == late_rank(ranks) else 0, SLOW_MS if slow and rank in slow_ranks(ranks) else 0, links)


def write_job(folder: Path, ranks: int, megabytes: float, *, slow: bool = False) -> int:
    """Writes a job, with a slow node or without; returns the number of its late rank."""
    texts: dict[Kind, bytes] = {}
    for rank in range(ranks):
        kind = kind_of_rank(rank, ranks, slow=slow)
        if kind not in texts:
            texts[kind] = body(megabytes, kind).replace("WORLD", str(ranks)).replace("NODE,", f"{NODE},").encode()
        clock_ns = _BASE_NS + (rank * 7_919_131) % 10**9
        said = f'"rank": {rank}, "world_size": {ranks}, "pg_config": {json.dumps(groups(rank, ranks))}'
        head = HEAD.replace('"rank": 0, "world_size": 2', said).replace(str(_BASE_NS), str(clock_ns))
        tail = '  {"name": "process_name", "ph": "M", "ts": 1000000000000.000, "pid": 4001, "tid": 0, "args": {"name": "python"}}\n]}\n'
        rows = texts[kind].replace(b"NODEGROUP", f"tp{rank // NODE * NODE}".encode())
        (folder / trace_name(rank, clock_ns)).write_bytes(head.encode() + rows + tail.encode())
    return late_rank(ranks)


def write_forms(folder: Path, ranks: int, *, slow: bool = False) -> int:
    """Writes so many reduced forms, made of one of each kind; returns the number of the late rank."""
    import numpy as np

    from advisor.engine import reduced_form
    from advisor.ranks.rank_mesh import mesh_places
    from advisor.trace.meta import Group

    small = 4 * NODE
    needed = (0, SLOW_NODE * NODE, LINK_NODE * NODE, late_rank(small))
    with tempfile.TemporaryDirectory() as traces, tempfile.TemporaryDirectory() as reduced:
        write_job(Path(traces), small, 2.0, slow=slow)
        for path in Path(traces).iterdir():
            if int(path.name.partition("_")[2].partition(".")[0]) - 4000 not in needed:
                path.unlink()
        subprocess.run([sys.executable, "-m", "advisor", "reduce", traces, "-o", reduced, "-q"], check=True)
        read = [reduced_form.decode(path.read_bytes(), path) for path in sorted(Path(reduced).iterdir())]
    made = {kind_of_rank(one.origin.rank, small, slow=slow): one for one in read}
    for rank in range(ranks):
        seen = made[kind_of_rank(rank, ranks, slow=slow)]
        facts = seen.result.facts
        assert facts is not None
        off = (rank * 7_919_131) % 10**9
        talks = replace(
            facts.talks,
            start_ns=facts.talks.start_ns + off,
            end_ns=facts.talks.end_ns + off,
            asked_ns=facts.talks.asked_ns + off,
            group=tuple("0" if name == "0" else f"tp{rank // NODE * NODE}" for name in facts.talks.group),
            members=np.array([ranks if name == "0" else NODE for name in facts.talks.group], np.int64),
        )
        listed = [Group(str(g["pg_name"]), str(g["pg_desc"]), tuple(g["ranks"])) for g in groups(rank, ranks)]  # type: ignore[arg-type]
        moved = replace(
            facts,
            talks=talks,
            starts_ns=facts.starts_ns + off,
            exposed=facts.exposed + off,
            world_size=ranks,
            mesh=mesh_places(tuple(listed), rank),
        )
        outcomes = tuple(
            replace(o, findings=tuple(replace(f, ranks=(rank,)) for f in o.findings)) for o in seen.result.outcomes
        )
        summary = replace(seen.result.summary, rank=rank, file=trace_name(rank, _BASE_NS + off))
        result = replace(seen.result, facts=moved, summary=summary, outcomes=outcomes)
        origin = reduced_form.Origin(
            rank, summary.file, ranks, seen.origin.start_ns, seen.origin.end_ns, seen.origin.rules
        )
        (folder / reduced_form.file_name(origin)).write_bytes(reduced_form.encode(result, origin))
    return late_rank(ranks)


def peaks(command: list[str]) -> tuple[int, int]:
    """The most memory that its processes had at once, and that its own process had."""
    process = _started(command)
    tree, own, ended = [0], [0], threading.Event()

    def sample() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            mine = _pss(process.pid)
            own[0] = max(own[0], mine)
            tree[0] = max(tree[0], mine + sum(map(_pss, _descendants(process.pid))))

    sampler = threading.Thread(target=sample)
    sampler.start()
    process.wait()
    ended.set()
    sampler.join()
    return tree[0], own[0]


def row(name: str, folder: Path, late: int, workers: int, say: Path) -> str:
    """Measures one job: a row of the table."""
    out = say / "out.json"
    command = [sys.executable, "-m", "advisor", "analyze", str(folder), "--format", "json", "-q"]
    command += ["--workers", str(workers), "--output", str(out)]
    out.unlink(missing_ok=True)
    cost = measured(command)
    out.unlink(missing_ok=True)
    tree, own = peaks(command)
    report = json.loads(out.read_text())
    found = next(one for one in report["outcomes"] if one["rule"] == "straggling-rank")
    named = found["findings"][0] if found["findings"] else {}
    right = named.get("facts", {}).get("rank") == late
    saved = (named.get("saving") or {}).get("high_us", 0.0)
    size, ranks = sum(path.stat().st_size for path in folder.iterdir()), len(report["ranks"])
    return (
        f"| {name}, {size / 1e6:.0f} MB | {workers} | {cost.cpu_s:.1f} | {cost.wall_s:.1f} | {1e3 * cost.cpu_s / ranks:.0f} | "
        f"{tree / 1e6:.0f} MB | {own / 1e6:.0f} MB | {'yes' if right else 'NO'}, {saved / 1e3:.1f} ms of {LATE_MS} |\n"
    )


def page_row(name: str, folder: Path, late: int, workers: int, say: Path) -> str:
    """Measures the page of one job: a row of the other table."""
    out = say / "out"
    command = [sys.executable, "-m", "advisor", "analyze", str(folder), "-q", "--format", "html", "--format", "json"]
    cost = measured([*command, "--workers", str(workers), "--output", str(out)])
    page, data = (out / "report.html").read_bytes(), (out / "report.json").read_bytes()
    shutil.rmtree(out)
    report = json.loads(data)
    job = report["compared"]
    top = max(job["ranks"], key=lambda one: one["awaited_us"])["rank"]
    slow = [one["ranks"] for one in job["groups"] if one["stands_out"]]
    node = list(slow_ranks(len(report["ranks"])))
    right = slow == ([node] if node else [])
    links = [one["ranks"] for of in job["links"] for one in of["slow"]]
    node = list(link_ranks(len(report["ranks"])))
    of_links = "yes" if links == ([node] if node else []) else "NO"
    return (
        f"| {name} | {cost.cpu_s:.1f} | {cost.wall_s:.1f} | {len(page) / 1e3:.0f} KB | {len(data) / 1e3:.0f} KB | "
        f"{len(report['details']) + 1} | {'yes' if top == late else 'NO'} | "
        f"{'yes' if right else 'NO'} | {of_links} |\n"
    )


def process_s(pid: int) -> float:
    """CPU seconds that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def dask_rows(name: str, folder: Path, say: Path, times: int) -> Iterator[str]:
    """One and two local processes and two workers of dask, alternately: rows of medians."""
    from dask_cluster import cluster

    with cluster(say, 2) as found:
        pids = [one.pid for one in (*found.workers, found.scheduler)]
        ways = {
            "1 process": ["--workers", "1"],
            "2 processes": ["--workers", "2"],
            "2 workers of dask": ["--scheduler-file", str(found.file)],
        }
        costs: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        own: dict[str, int] = {}
        reports = set()
        # The first turn is no part of it: workers of dask load the rules in theirs.
        for turn in range(times + 1):
            for way, words in ways.items():
                out, before = say / f"{turn}-{len(costs[way])}-{way}.json", sum(map(process_s, pids))
                command = [sys.executable, "-m", "advisor", "analyze", str(folder), "-q", *words, "-o", str(out)]
                cost = measured(command)
                reports.add(out.read_bytes())
                if turn:
                    costs[way].append((cost.cpu_s + sum(map(process_s, pids)) - before, cost.wall_s))
        for way, words in ways.items():
            # In runs of their own: looking at a process's memory holds it up.
            out = say / f"memory-{way}.json"
            own[way] = peaks([sys.executable, "-m", "advisor", "analyze", str(folder), "-q", *words, "-o", str(out)])[1]
            reports.add(out.read_bytes())
    same = "yes" if len(reports) == 1 else "NO"
    for way, seen in costs.items():
        cpu, wall = zip(*seen, strict=True)
        low_high = f"{statistics.median(wall):.1f} ({min(wall):.1f} to {max(wall):.1f})"
        cpus = f"{statistics.median(cpu):.1f} ({min(cpu):.1f} to {max(cpu):.1f})"
        yield f"| {name} | {way} | {cpus} | {low_high} | {own[way] / 1e6:.0f} MB | {same} |\n"


_DASK = "| job | read by | CPU s | wall s | peak memory of the command's own process | same report |\n"
_TABLE = "| job | workers | CPU s | wall s | CPU ms a rank | peak memory | of the command's own process | late rank found |\n"
_PAGES = "| job | CPU s | wall s | page | report.json | ranks in full | late rank on top | slow node alone | slow links alone |\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="*", default=["16x20"], metavar="RANKSxMB")
    parser.add_argument("--forms", type=int, nargs="*", default=[], metavar="RANKS")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pages", action="store_true", help="measure pages")
    parser.add_argument("--dask", type=int, default=0, metavar="TIMES", help="compare with workers of dask, so often")
    parser.add_argument("--folder", help="where the jobs are written (default: a temporary folder)")
    args = parser.parse_args()
    say = sys.stdout.write
    say(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, ")
    say(f"load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d')}\n\n")
    table, made = (_PAGES, page_row) if args.pages else (_TABLE, row)
    table = _DASK if args.dask else table
    say(table + "|---" * (table.count("|") - 1) + "|\n")
    for job in args.jobs:
        ranks, megabytes = job.split("x")
        with (
            tempfile.TemporaryDirectory(prefix="ranks-", dir=args.folder) as folder,
            tempfile.TemporaryDirectory() as out,
        ):
            late = write_job(Path(folder), int(ranks), float(megabytes), slow=args.pages)
            if args.dask:
                say("".join(dask_rows(f"{ranks} x {megabytes} MB", Path(folder), Path(out), args.dask)))
                continue
            for workers in args.workers:
                say(made(f"{ranks} x {megabytes} MB", Path(folder), late, workers, Path(out)))
                sys.stdout.flush()
    for ranks in args.forms:
        with (
            tempfile.TemporaryDirectory(prefix="forms-", dir=args.folder) as folder,
            tempfile.TemporaryDirectory() as out,
        ):
            late = write_forms(Path(folder), ranks, slow=args.pages)
            say(made(f"{ranks} reduced forms", Path(folder), late, 1, Path(out)))
            sys.stdout.flush()


if __name__ == "__main__":
    main()

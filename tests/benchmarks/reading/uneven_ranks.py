"""Jobs of many ranks in which one place of the mesh is late: a pipeline's stage, or the experts with the most tokens.

    python tests/benchmarks/reading/uneven_ranks.py [--ranks 64] [--keep FOLDER]

Stages: so many pipelines of four stages, each with eight micro-batches in the order of GPipe; the third stage computes
LATE times as long as the others. Experts: on each node of eight ranks tokens are exchanged, and the experts of its
sixth rank get MOST times the mean. Both reduce gradients over the copies of a place at the end of a step. Each rank has
a clock of its own. Times are drawn by plain arithmetic, and the same job with even parts is what the fault costs.
Prints what is said beside the truth. Nothing of it was measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STEPS, STAGES, MICRO, NODE = 6, 4, 8, 8
LATE, LATE_STAGE = 1.5, 2
MOST, MOST_PLACE = 2.0, 5
FORWARD_US, SEND_US, REDUCE_US, GAP_US = 2_000.0, 150.0, 3_000.0, 400.0
EXPERT_US, TOKENS, EXCHANGE_US = 9_000.0, 4_096, 300.0
_BASE_US = 1_759_104_000_000_000.0


@dataclass
class Rank:
    """The rows of one rank. at: when its compute stream is free."""

    number: int
    groups: list[dict[str, Any]]
    rows: list[dict[str, Any]] = field(default_factory=list)
    at: float = 0.0
    calls: int = 0

    def kernel(self, name: str, start: float, us: float, stream: int = 7, **said: Any) -> float:
        """A kernel with its launch, which came early; returns when it ends."""
        self.calls += 1
        args = {"correlation": self.calls, "External id": self.calls}
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4001, "tid": 4001}
        self.rows.append(launch | {"ts": start - 12, "dur": 4, "args": args | {"cbid": 211}})
        row = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start, "dur": us}
        self.rows.append(row | {"args": args | {"device": 0, "context": 1, "stream": stream} | said})
        return start + us

    def talks(self, kind: str, start: float, end: float, group: int, count: int, **said: Any) -> float:
        """A kernel of NCCL on the stream of its group, or of the pair of ranks that pass it on."""
        of = self.groups[group]
        kernel = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL" if kind == "allreduce" else "ncclDevKernel_SendRecv"
        known = {"Collective name": kind, "In msg nelems": count, "Out msg nelems": count, "dtype": "BFloat16"}
        known |= {"Group size": of["pg_size"], "Process Group Name": of["pg_name"]}
        known["Process Group Description"] = of["pg_desc"]
        return self.kernel(
            f"{kernel}(ncclDevKernelArgsStorage<4096ul>)", start, end - start, 20 + group, **known | said
        )


def group(name: str, purpose: str, members: Sequence[int]) -> dict[str, Any]:
    """A process group, as torch writes it."""
    return {"pg_name": name, "pg_desc": purpose, "pg_size": len(members), "ranks": list(members)}


def pipelines(ranks: int, *, even: bool) -> list[Rank]:
    """Stages are the outermost dimension, as torchtitan and Megatron-LM have it: rank = stage x copies + copy."""
    copies = ranks // STAGES
    job = []
    for number in range(ranks):
        stage, copy = divmod(number, copies)
        chain = group(f"pp{copy}", "mesh_pp", range(copy, ranks, copies))
        job.append(Rank(number, [chain, group(f"dp{stage}", "mesh_dp", range(stage * copies, (stage + 1) * copies))]))
    for number in range(STEPS):
        begins = max(rank.at for rank in job) + GAP_US
        ends = [_pipeline(job[copy::copies], begins, even) for copy in range(copies)]
        for rank in job:
            start = rank.at
            rank.at = rank.talks("allreduce", start, max(ends) + REDUCE_US, 1, 50_000_000, Seq=number)
            _step(rank, number, begins)
    return job


def _pipeline(chain: list[Rank], begins: float, even: bool) -> float:
    """One step of one pipeline; returns when its last kernel ends."""
    work = [FORWARD_US * (LATE if stage == LATE_STAGE and not even else 1) for stage in range(STAGES)]
    for rank in chain:
        rank.at = begins
    for name, order, cost in (("forward", range(STAGES), 1), ("backward", range(STAGES - 1, -1, -1), 2)):
        ready: dict[int, list[float]] = {}  # when the data of each micro-batch is there, by stage
        places = list(order)
        for here, there in zip(places, [*places[1:], None], strict=True):
            rank = chain[here]
            for micro in range(MICRO):
                start = max(rank.at, ready[here][micro] if here in ready else begins)
                if here in ready:
                    source = chain[here + (1 if name == "backward" else -1)].number
                    before = rank.at
                    rank.talks("recv", before, max(start, before + SEND_US), 0, 4_000_000, **{"Src Rank": source})
                    start = max(start, before + SEND_US)
                rank.at = rank.kernel(f"gemm_{name}", start, cost * work[here])
                if there is not None:
                    target = chain[there].number
                    sent = rank.talks("send", rank.at, rank.at + SEND_US, 0, 4_000_000, **{"Dst Rank": target})
                    ready.setdefault(there, []).append(sent)
    return max(rank.at for rank in chain)


def experts(ranks: int, *, even: bool) -> list[Rank]:
    """Each node exchanges its tokens, computes its experts, and sends the results back."""
    job = []
    for number in range(ranks):
        node, place = divmod(number, NODE)
        own = group(f"ep{node}", "mesh_ep", range(node * NODE, (node + 1) * NODE))
        job.append(Rank(number, [own, group(f"dp{place}", "mesh_dp", range(place, ranks, NODE))]))
    rest = (NODE - MOST) / (NODE - 1)
    for number in range(STEPS):
        begins = max(rank.at for rank in job) + GAP_US
        for rank in job:
            share = 1.0 if even else MOST if rank.number % NODE == MOST_PLACE else rest
            got = round(TOKENS * 1024 * share)
            rank.at = rank.kernel("gemm_attention", begins, FORWARD_US)
            sizes = {"In msg nelems": TOKENS * 1024, "Out msg nelems": got}
            rank.at = rank.talks("all_to_allv", rank.at, rank.at + EXCHANGE_US, 0, got, **sizes, Seq=2 * number)
            rank.at = rank.kernel("gemm_experts", rank.at, EXPERT_US * share)
        for node in range(ranks // NODE):
            mine = job[node * NODE : (node + 1) * NODE]
            last = max(rank.at for rank in mine) + EXCHANGE_US
            for rank in mine:
                share = 1.0 if even else MOST if rank.number % NODE == MOST_PLACE else rest
                sizes = {"In msg nelems": round(TOKENS * 1024 * share), "Out msg nelems": TOKENS * 1024}
                rank.at = rank.talks("all_to_allv", rank.at, last, 0, 1, **sizes, Seq=2 * number + 1)
                rank.at = rank.kernel("gemm_backward", rank.at, 2 * FORWARD_US)
        ends = max(rank.at for rank in job) + REDUCE_US
        for rank in job:
            rank.at = rank.talks("allreduce", rank.at, ends, 1, 50_000_000, Seq=number)
            _step(rank, number, begins)
    return job


def _step(rank: Rank, number: int, begins: float) -> None:
    row = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 4001, "tid": 4001}
    rank.rows.append(row | {"ts": begins - 20, "dur": rank.at - begins + GAP_US / 2, "args": {}})


def write(job: Sequence[Rank], folder: Path) -> None:
    """A trace for each rank, each with a clock of its own."""
    folder.mkdir()
    for rank in job:
        off = _BASE_US + rank.number * 791_913 % 1e6
        rows = [row | {"ts": row["ts"] + off} for row in rank.rows]
        known = {"rank": rank.number, "world_size": len(job), "backend": "nccl", "pg_config": rank.groups}
        device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132, "computeMajor": 9, "computeMinor": 0}
        text = json.dumps(
            {"schemaVersion": 1, "distributedInfo": known, "deviceProperties": [device], "traceEvents": rows}
        )
        (folder / f"node{rank.number // NODE}_{4000 + rank.number}.1.pt.trace.json").write_text(text)


def said(folder: Path) -> Iterator[str]:
    """What the advisor says of a job."""
    out = folder.parent / f"{folder.name}.json"
    words = ["analyze", str(folder), "-q", "--format", "json", "-o", str(out)]
    subprocess.run([sys.executable, "-m", "advisor", *words], check=True)
    report = json.loads(out.read_bytes())
    yield f"  told: a step of {report['metrics']['step_time_us']['value'] / 1e3:.1f} ms"
    for outcome in report["outcomes"]:
        for one in outcome["findings"]:
            low, high = ((one["saving"] or {}).get(end, 0.0) / 1e3 for end in ("low_us", "high_us"))
            yield f"  - {outcome['rule']} [{low:.1f} to {high:.1f} ms]: {one['message']}"
    for of in report["compared"]["groups"]:
        if of["stands_out"]:
            yield f"  stands out: {of['kind']} {of['index']}, ranks {of['ranks'][:4]} ... of {len(of['ranks'])}"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--keep", type=Path, help="keep the traces in this folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for made, truth in ((pipelines, f"stage {LATE_STAGE}"), (experts, f"place {MOST_PLACE} of the experts")):
            late, even = made(args.ranks, even=False), made(args.ranks, even=True)
            folder = (args.keep or Path(temporary)) / made.__name__
            write(late, folder)
            took, cost = (us / STEPS / 1e3 for us in (late[0].at, late[0].at - even[0].at))
            print(f"\n{made.__name__}: {truth} is late, which costs {cost:.1f} of {took:.1f} ms a step")
            print("\n".join(said(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Reports built in code for the reporters' tests: as real ones look, empty, and hostile."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

from hostile_text import poison
from msgspec.structs import replace
from report_parts import KERNEL, PAGE, account, breakdown, findings, metrics, modules, other_ranks, timeline, windows

from advisor.engine import registry
from advisor.model import (
    BreakdownItem,
    ComparedRank,
    ComparedRanks,
    DetailedRank,
    Finding,
    Fix,
    Health,
    Joint,
    LineShare,
    Metric,
    ModuleTable,
    OpRow,
    Outcome,
    RankGroup,
    RankLinks,
    RankSummary,
    ReplayCheck,
    Report,
    RunInfo,
    Saving,
    SlowLinks,
    Source,
    StepsSummary,
    Times,
)


def module(name: str):  # type: ignore[no-untyped-def]
    """A module of the reporters: they are found by entry point and imported by nobody."""
    text = registry.load_reporter("text")
    return import_module(f"{text.__module__.rpartition('.')[0]}.{name}")


def empty() -> Report:
    """A report of a trace that held nothing."""
    return Report(RunInfo(), (), StepsSummary(), {}, (), ())


def canonical() -> Report:
    """A report of one GPU with everything in it."""
    parts = breakdown(100_000, compute=0.5, exposed_copy=0.04, idle_input=0.4, idle_sync=0.055, idle_unknown=0.005)
    series = tuple(97_000 + (i * 7919) % 3_000 + (180_000 if i % 41 == 40 else 0) for i in range(120))
    return Report(
        run=RunInfo(
            command=("train.py", "--epochs", "3", "--token=***"),
            versions={"torch": "2.13.0", "cuda": "13.0", "python": "3.12.1", "torch-advisor": "0.1.0"},
            devices=("Tesla V100-SXM2-16GB",),
            environment={"OMP_NUM_THREADS": "8"},
            files=("trace-rank0-123.pt.trace.json.gz",),
        ),
        health=(
            Health("steps", "ok", "6 whole steps were recorded"),
            Health("unlinked", "note", "12 kernels have no launch in the trace; they are counted by their start"),
            Health("shapes", "warning", "the profiler recorded no shapes; precision is judged by kernel names"),
        ),
        steps=StepsSummary(
            count=6,
            source="loader",
            eval_count=2,
            profiled_us=Times(104_000, 100_000, 98_000, 110_000, 6),
            unprofiled_us=Times(114_500, 98_400, 97_200, 99_700, 120),
            dilation=1.016,
            repeats=0.012,
            series_us=series,
        ),
        metrics=metrics(
            step_time_us=(98_400.0, "us"),
            device_busy_share=(0.54, "share"),
            device_idle_share=(0.46, "share"),
            communication_share=(0.0, "share"),
            exposed_copy_share=(0.04, "share"),
            input_wait_share=(0.4, "share"),
            h2d_bytes=(38_535_168.0, "bytes"),
            h2d_pageable_bytes=(38_535_168.0, "bytes"),
            copies=(2.0, "count"),
            kernels=(1465.0, "count"),
            launches=(1465.5, "count"),
            syncs=(3.0, "count"),
            optimizer_steps_per_step=(0.25, "ratio"),
            samples_per_second=(650.4, "per_second"),
            mfu=(None, "share"),
            peak_memory_bytes=(None, "bytes"),
        ),
        breakdown=parts,
        outcomes=findings(),
        joint=Joint(39_000, 61_000, 48_400),
        replay=ReplayCheck(0.021, False),
        ranks=(RankSummary(0, "trace-rank0-123.pt.trace.json.gz", {}, StepsSummary(), parts),),
        timeline=timeline(),
        kernels=(
            OpRow("volta_scudnn_128x64_relu_interior_nn_v1", "compute", 21_000, 40, 0.21),
            OpRow(KERNEL, "compute", 9_400, 310.5, 0.094),
            OpRow("Memcpy HtoD (Pageable -> Device)", "copy", 4_000, 2, 0.04),
        ),
        lines=(
            OpRow("train.py:95 train_one_epoch", "line", 10_000, 1, 0.1),
            OpRow("train.py:88", "line", 40_000, 1, 0.4),
        ),
        ops=(OpRow("aten::conv2d", "cpu_op", 20_000, 53, 0.2), OpRow("aten::item", "cpu_op", 10_000, 1, 0.1)),
        modules=modules(),
        account=account(),
        windows=windows(),
        line_shares=line_shares(),
    )


def on_cpu() -> Report:
    """A report of a small script on a CPU: a long tail, no device."""
    batch = Finding(
        message="A batch of 4 leaves 71 % of the 2.43 ms step to work that does not grow with the batch.",
        saving=Saving(
            1_500,
            1_700,
            "modelled",
            "fixed time of the step, shared by 16 times as many samples",
            {"profiler": 120.0, "steps": 50.0},
        ),
        where=(Source("samples/cifar10_cnn.py", 58, "main"),),
        facts={"batch_size": 4, "fixed_us": 1_730.0, "per_sample_us": 175.0},
        fix=Fix("batch_size=64", "semantics", "batch_size=4", "batch_size=64"),
        claims=("forward", "backward", "optimizer"),
        severity="high",
    )
    threads = Finding(
        message="2 intra-op threads and 2 loader workers share 2 cores.",
        saving=None,
        fix=Fix("leave a core to the workers", "exact", after="torch.set_num_threads(1)"),
        facts={"cores": 2, "threads": 2, "workers": 2},
        severity="medium",
    )
    absent = "no device work in the trace"
    names = ("idle-gpu", "pageable-copies", "blocking-copies", "launch-bound", "sync-in-loop")
    shares = {"input": 0.06, "forward": 0.24, "backward": 0.31, "optimizer": 0.11, "other_ops": 0.03, "host": 0.25}
    return Report(
        run=RunInfo(("samples/cifar10_cnn.py",), {"torch": "2.15.0", "python": "3.11.7"}, environment={}),
        health=(Health("device", "note", absent),),
        steps=StepsSummary(
            20, "loader", 0, Times(3_100, 2_900, 2_700, 3_600, 20), Times(9_800, 2_430, 2_310, 31_000, 200), 1.19
        ),
        metrics={
            **metrics(step_time_us=(2_430.0, "us"), cpu_ops=(214.0, "count"), input_wait_share=(0.06, "share")),
            "device_busy_share": Metric("device_busy_share", None, "share", "not_measured", absent),
        },
        breakdown=breakdown(2_900, **shares),
        outcomes=(
            Outcome("small-batch", "found", (batch,), title="The batch is too small", page=PAGE),
            Outcome("thread-oversubscription", "found", (threads,), title="Threads and workers fight for cores"),
            *(Outcome(name, "skipped", reason=f"{absent}; run it on a machine with a GPU") for name in names),
            Outcome("exposed-communication", "skipped", reason="one rank only"),
            *(
                Outcome(name, "clear")
                for name in ("fp32-matmul", "input-bound", "loop-optimizer", "unused-accelerator")
            ),
        ),
        joint=Joint(1_500, 1_700, 830),
        line_shares=line_shares(),
    )


def line_shares() -> tuple[LineShare, ...]:
    """A layer that is called in a loop, the line of the optimizer, and one too small for a summary."""
    return (
        LineShare(Source("samples/model.py", 24, "forward"), 0.31, 0.38, 0.6, 48, 3_120),
        LineShare(Source("samples/cifar10_cnn.py", 62), 0.11, 0.11, 0.0, 1, 96.5),
        LineShare(Source("samples/cifar10_cnn.py", 60, "main"), 0.01, 0.02, 0.0, 1, 2),
    )


def many_ranks(count: int = 8) -> Report:
    """A job of several ranks that communicate."""
    one = canonical()
    summaries = tuple(
        RankSummary(
            rank,
            f"worker{rank}.json.gz",
            metrics(step_time_us=(98_000.0 + 500 * rank, "us"), device_busy_share=(0.7 - 0.01 * (rank % 40), "share")),
            StepsSummary(5, "user", 0, Times(98_000, 98_000, 97_000, 99_000, 5)),
            breakdown(98_000, compute=0.4, exposed_communication=0.3, idle_launch=0.3),
        )
        for rank in range(count)
    )
    parts = breakdown(98_000, compute=0.4, exposed_communication=0.3, idle_launch=0.3)
    run = replace(one.run, world_size=count, reference_rank=3)
    return replace(one, ranks=summaries, breakdown=parts, run=run, what_if_ranks=other_ranks(count))


LATE, SLOW_NODE = 5, 1


def large_job(count: int = 12) -> Report:
    """A job on nodes of four, in two pipeline stages: one rank is late, and the kernels of a node are slow."""
    one = many_ranks(count)
    rows = tuple(
        ComparedRank(
            rank=rank,
            own_us=68_600.0 + 9_800 * (rank // 4 == SLOW_NODE) + 20_000 * (rank == LATE),
            node=rank // 4,
            mesh={"stages": rank * 2 // count, "data": rank % (count // 2)},
            waits_us=25_000.0 * (rank != LATE),
            waits_for=None if rank == LATE else LATE,
            waits_for_us=25_000.0 * (rank != LATE),
            awaited_us=25_000.0 * (rank == LATE),
            last_share=float(rank == LATE),
            more="idle_launch" if rank == LATE else "",
            more_us=20_000.0 * (rank == LATE),
        )
        for rank in range(count)
    )
    nodes = tuple(
        RankGroup(
            "node", node, tuple(range(4 * node, 4 * node + 4)), 68_600.0 + 9_800 * slow, 9_800.0 * slow, 2e4,
            "compute" * slow, slow,
        )
        for node in range(count // 4)
        for slow in (node == SLOW_NODE,)
    )  # fmt: skip
    slow = SlowLinks(nodes[SLOW_NODE].ranks, (SLOW_NODE,), 8_000.0, 6_000.0)
    links = (
        RankLinks(True, 4, count // 4, 2.0, 2_000.0, 1_900.0, 8_000.0, (slow,)),
        RankLinks(False, count // 4, 4, 1.0, 3_000.0, 2_900.0, 3_100.0),
    )
    compared = ComparedRanks(98_000.0, 5, rows, nodes, 3.0, links=links)
    table = ModuleTable(LATE, 5, folded=one.modules.folded if one.modules else ())
    details = (
        DetailedRank(0, ("least own work", "stages:0"), one.timeline, one.kernels, one.ops, one.lines, table),
        DetailedRank(LATE, ("others wait for it", "node:1", "asked for"), one.timeline, one.kernels, one.ops),
    )
    return replace(one, compared=compared, details=details)


def hostile() -> Report:
    """The report of a large job with a hostile text in every string that input can reach."""
    return poison(large_job())


REPORTS = {
    "canonical": canonical,
    "empty": empty,
    "hostile": hostile,
    "on_cpu": on_cpu,
    "many_ranks": many_ranks,
    "large_job": large_job,
}


def as_plain(text: str) -> Any:
    """JSON, strictly: NaN and Infinity are errors."""

    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


def made(parts: dict[str, float], **changes: object) -> Report:
    """The canonical report with a breakdown of these shares of a step of 100 ms, no whole run, and other changes."""
    items = tuple(BreakdownItem(name, share * 1e5, share) for name, share in parts.items())
    return replace(canonical(), breakdown=items, **{"account": None, **changes})

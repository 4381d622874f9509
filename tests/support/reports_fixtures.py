"""Reports built in code for the reporters' tests: as real ones look, empty, and hostile."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from typing import Any

from advisor.engine import registry
from advisor.model import (
    AtRanks,
    BreakdownItem,
    ComparedRank,
    ComparedRanks,
    DetailedRank,
    Finding,
    FittedCollective,
    Fix,
    Health,
    Joint,
    Lane,
    Metric,
    ModuleCost,
    ModuleTable,
    Moved,
    OpRow,
    Outcome,
    ProfiledWindow,
    RankGroup,
    RankSummary,
    ReplayCheck,
    Report,
    RunAccount,
    RunInfo,
    RunLine,
    RunPart,
    Saving,
    Segment,
    Source,
    StepsSummary,
    Timeline,
    Times,
    WhatIfRanks,
)

PAGE = """GPU waits for the next batch

## What it looks at
The time in which the loop stands in `next()` on its DataLoader while **every** stream is empty.

## Why it costs time
An empty GPU costs as much as a busy one:

- nothing overlaps with the wait
- the next kernels start late

## How to fix it
Load in worker processes.

    loader = DataLoader(data, num_workers=4)

## When to leave it
When the wait is below the noise between steps.
"""

KERNEL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, 1> >"
    "(int, at::native::FillFunctor<float>, at::detail::Array<char*, 1>)"
)


def module(name: str):  # type: ignore[no-untyped-def]
    """A module of the reporters: they are found by entry point and imported by nobody."""
    text = registry.load_reporter("text")
    return import_module(f"{text.__module__.rpartition('.')[0]}.{name}")


def empty() -> Report:
    """A report of a trace that held nothing."""
    return Report(RunInfo(), (), StepsSummary(), {}, (), ())


def breakdown(step_us: float, **shares: float) -> tuple[BreakdownItem, ...]:
    """Parts of a step from their shares."""
    return tuple(BreakdownItem(name, share * step_us, share) for name, share in shares.items())


def metrics(**given: tuple[float | None, str]) -> dict[str, Metric]:
    """Metrics from (value, unit); a None value is not measured."""
    return {
        name: Metric(name, value, unit)  # type: ignore[arg-type]
        if value is not None
        else Metric(name, None, unit, "not_measured", "the trace holds no such events; capture it with `advisor run`")  # type: ignore[arg-type]
        for name, (value, unit) in given.items()
    }


def timeline() -> Timeline:
    """A step of 100 ms with a wait for input, a sync, many kernels and a copy."""
    kernels = [
        Segment(44_000 + i * 1_800, 1_500, "compute", KERNEL if i % 3 else "volta_sgemm_128x64") for i in range(28)
    ]
    idle = [Segment(0, 40_000, "idle_input", "waits for input"), Segment(94_500, 5_500, "idle_sync", "after item()")]
    stream = [Segment(40_000, 4_000, "exposed_copy", "Memcpy HtoD (Pageable -> Device)"), *kernels, *idle]
    main = [
        Segment(0, 39_500, "input", "_SingleProcessDataLoaderIter.__next__"),
        Segment(40_000, 20_000, "forward", "aten::conv2d"),
        Segment(60_000, 30_000, "backward", "ConvolutionBackward0"),
        Segment(90_000, 10_000, "sync", "aten::item"),
    ]
    return Timeline("ProfilerStep#7", 100_000, (Lane("main thread", tuple(main)), Lane("stream 7", tuple(stream))))


def findings() -> tuple[Outcome, ...]:
    """All four outcomes, one to three findings each."""
    source = Source("train.py", 88, "train_one_epoch")
    wait = Finding(
        message="The GPU waits 40.0 ms of every 100 ms step for the next batch; the loader has no worker processes.",
        saving=Saving(34_000, 39_000, "modelled", "idle time that ends with a fetch, scaled to steps without profiler"),
        where=(source,),
        facts={"idle_us": 40_000.0, "fetches": 1, "workers": 0, "input_share": 0.4, "h2d_bytes": 38_535_168},
        fix=Fix(
            "load batches in worker processes",
            "exact",
            before="loader = DataLoader(data, batch_size=64)",
            after="loader = DataLoader(\n    data, batch_size=64, num_workers=4, persistent_workers=True\n)",
        ),
        claims=("idle_input",),
        severity="high",
        ranks=(0,),
    )
    fp32 = Finding(
        message="83 % of the GPU's busy time is matmul and convolution in full fp32.",
        saving=Saving(
            0, 22_000, "assumed", "a V100 does fp16 up to 8 times faster; measured models gain 1.5 to 3 times"
        ),
        where=(Source("train.py", 31, "forward", "function"),),
        facts={"fp32_us": 41_000.0, "dtypes": ["float"]},
        fix=Fix("train in mixed precision", "numerics", after="with torch.autocast('cuda', torch.float16):"),
        claims=("compute",),
        severity="low",
    )
    sync = Finding(
        message="`loss.item()` makes the host wait for the GPU in every step.",
        saving=Saving(3_000, 5_000, "modelled", "idle time after the sync"),
        where=(Source("train.py", 95, "train_one_epoch"), Source("metrics.py", 12, "<module>")),
        fix=Fix("read the loss every 50 steps", "exact", "total += loss.item()", "total += loss.detach()"),
        claims=("idle_sync",),
        severity="medium",
    )
    copies = Finding(
        "Batches of 38.5 MB are copied from pageable memory.",
        Saving(900, 1_100, "modelled", "copies"),
        facts={"copies": 2},
    )
    graph = Finding("412 kernels a step are shorter than 10 µs.", Saving(500, 2_500, "assumed", "launch gaps"))
    limit = Finding("The disk delivers 80 MB/s, which is all it can.", recoverable=False)
    return (
        Outcome("blocking-copies", "clear", title="Copies make the host wait"),
        Outcome("input-bound", "found", (wait, limit), title="GPU waits for the next batch", page=PAGE),
        Outcome("fp32-matmul", "found", (fp32,), title="Matrix products run in full fp32", page=PAGE),
        Outcome("sync-in-loop", "found", (sync,), title="The loop reads results back in every step", page=PAGE),
        Outcome("pageable-copies", "found", (copies,), title="Copies start in pageable memory", page=PAGE),
        Outcome("launch-bound", "found", (graph,), title="Kernels are too short", confirmed=False, page=PAGE),
        Outcome("exposed-communication", "skipped", reason="one rank only; give all ranks' traces", title="Exposed"),
        Outcome("small-batch", "skipped", reason="the batch size is unknown; capture with `advisor run`"),
        Outcome("my-rule", "error", reason="KeyError: 'x' (line 12 of check)"),
        Outcome("loop-optimizer", "clear", title="The optimizer loops over tensors"),
    )


def modules() -> ModuleTable:
    """A network of three stages on a GPU; one module that compiled code hides, one whose work is not counted."""
    net = ModuleCost(
        "ResNet", "ResNet", 1, 0, 1, 25_557_032, 102_228_128, 2.62e11, 19_000, 700, 27_000, 90, 47_900, 300,
        0.46, 0.008, 0.479, 41_000, 45_000,
    )  # fmt: skip
    stem = ModuleCost(
        "conv1", "Conv2d", 1, 1, 1, 9_408, 37_632, 1.5e10, 900, 900, 700, 700, 5_200, 5_200, 0.016, 0.016, 0.052
    )
    stages = ModuleCost(
        "layer1.1-2", "Bottleneck", 2, 1, 2, 140_544, 562_176, None, 8_000, 300, 12_000, 50, 30_000, 200,
        0.2, 0.004, 0.3, 15_000, 21_000,
    )  # fmt: skip
    inner = replace(stages, path="layer1.1-2.conv2", kind="Conv2d", depth=2, flops=9e10, device_us=18_000.0)
    hidden = ModuleCost("fc", "Linear", parameters=2_049_000)
    return ModuleTable(0, 5, "", (net, stem, hidden), 3, (net, stem, stages, inner))


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
    )


def windows() -> tuple[ProfiledWindow, ...]:
    """A run that was profiled once more when it had become slower."""
    moved = (
        Moved("part", "input", 1_000, 0, 21_000, 0),
        Moved("line", "train.py:88 train_one_epoch", 4_000, 1, 24_500, 1),
        Moved("op", "aten::cat", 120, 3, 19_000, 5_003),
    )
    return (
        ProfiledWindow(10, "first", 5, 100_000, (95_000, 120_000)),
        ProfiledWindow(4_000, "every", 5, 101_000, (96_000, 110_000)),
        ProfiledWindow(12_000, "slower", 5, 124_000, (120_000, 130_000), moved),
    )


def account() -> RunAccount:
    """A run that is left for an evaluation every so many steps."""
    evaluate = RunLine(Source("train.py", 120, "main"), 38e6, Source("evaluate.py", 12, "evaluate"))
    parts = (
        RunPart("startup", 12e6, 0.12, 0.1e6, 1),
        RunPart("training", 44e6, 0.44, 1e6, 440, (RunLine(Source("train.py", 95, "main"), 40e6),)),
        RunPart("evaluation", 40e6, 0.40, 1e6, 22, (evaluate,)),
        RunPart("checkpoints", 4e6, 0.04, 1e6, 2, (RunLine(Source("train.py", 130, "main"), 4e6),)),
    )
    return RunAccount(100e6, 440, 6e6, parts, 0, 900)


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


def other_ranks(measured: int) -> WhatIfRanks:
    """The answer to `--what-if-ranks 64,1024`, of which the last is known at one end only."""
    return WhatIfRanks(
        message=f"On 1,024 ranks instead of {measured} this step would take at least 120 ms (now 98 ms).",
        ranks=measured,
        step_us=98_000.0,
        alone_us=70_000.0,
        efficiency=70 / 98,
        rows=(AtRanks(64, 105_000.0, 140_000.0, 0.5, 70 / 105), AtRanks(1024, 120_000.0, None, None, 70 / 120)),
        fitted=(FittedCollective("all_reduce", 40, 30.0, 55.0, 2.1e10),),
        assumptions=("Each rank keeps its batch.",),
    )


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
    compared = ComparedRanks(98_000.0, 5, rows, nodes, 3.0)
    table = ModuleTable(LATE, 5, folded=one.modules.folded if one.modules else ())
    details = (
        DetailedRank(0, ("least own work", "stages:0"), one.timeline, one.kernels, one.ops, one.lines, table),
        DetailedRank(LATE, ("others wait for it", "node:1", "asked for"), one.timeline, one.kernels, one.ops),
    )
    return replace(one, compared=compared, details=details)


HOSTILE = (
    "</script></style></title></textarea></svg>--><script>alert(1)</script>"
    "<img src=x onerror=alert(2)><a href='javascript:alert(3)'>x</a>\"' onload=alert(4) x=\""
    "{{ 7*7 }}{% raw %}|`a``b`|\u2028\u2029\x1b[31mred\x1b]0;title\x07\x9b1m\x00\x08\u202eevil\udc80]]>&amp;\r\n"
    "# h @user *b* _i_ [l](http://x) "
)


def hostile() -> Report:
    """The report of a large job with a hostile text in every string that input can reach."""
    return _poison(large_job())


# These strings are ours, or one of a fixed set: never taken from a trace.
_OURS = {"schema", "unit", "status", "severity", "at_most", "basis", "risk", "precision", "source", "version"}


def _poison(value: Any, name: str = "") -> Any:
    if isinstance(value, str):
        return value if name in _OURS else f"{HOSTILE}{value}"
    if isinstance(value, tuple):
        return tuple(_poison(item) for item in value)
    if isinstance(value, dict):
        return {_poison(key): _poison(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _poison(getattr(value, f.name), f.name) for f in fields(value)})
    return value


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

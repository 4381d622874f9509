"""Parts of reports as real ones look: a page, findings, a timeline, modules, windows, the whole run."""

from __future__ import annotations

from msgspec.structs import replace

from advisor.model import (
    AtRanks,
    BreakdownItem,
    Finding,
    FittedCollective,
    Fix,
    Lane,
    Metric,
    ModuleCost,
    ModuleTable,
    Moved,
    Outcome,
    ProfiledWindow,
    RunAccount,
    RunLine,
    RunPart,
    Saving,
    Segment,
    Source,
    Timeline,
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
        RunPart("startup", 12e6, None, 0.1e6, 1),
        RunPart("training", 44e6, 44 / 88, 1e6, 440, (RunLine(Source("train.py", 95, "main"), 40e6),)),
        RunPart("evaluation", 40e6, 40 / 88, 1e6, 22, (evaluate,)),
        RunPart("checkpoints", 4e6, 4 / 88, 1e6, 2, (RunLine(Source("train.py", 130, "main"), 4e6),)),
    )
    return RunAccount(100e6, 440, 6e6, parts, 0, 900)


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

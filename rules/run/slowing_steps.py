"""Ops process more with every step, or run more often.

## What it looks at
Ops of the profiled steps whose inputs grow by the same amount with every step, while no matrix multiplication grows:
they process everything that was kept since the start, or since the epoch began. On a device also without shapes: ops
whose kernels take longer with every step, by about the same time. Ops that run more often in every step
than in the one before, by the same number. The times of the steps that were timed without the profiler, in eight parts
of the run, measure what the growth costs where they rise from part to part.

## Why it costs time
`torch.cat(history)`, a mean over all losses, a metric over all predictions: each step processes all steps before it, so
the total cost grows with the square of the number of steps. It is a small part of the first epoch and most of the last.
A hook that is registered in each step and never removed runs once more with each of them.

## How to fix it
Keep what the result needs instead of everything it was computed from: a running sum and a count, `torchmetrics`'
`update()` in the step and `compute()` at the end of the epoch. Or compute it every N steps. Register hooks once, before
the loop, or remove them by the handle that registering returns.

## When to leave it
Lengths that are increased on purpose as training goes on: a curriculum. Metrics that are called in each step, and copy
all that they have kept, are told by `called-metrics`.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import (
    ELEMENTWISE,
    GEMM,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    GrowingOps,
    GrowingWork,
    Growth,
    LineCosts,
    Lines,
    MetricModules,
    Price,
    RankRecord,
    Saving,
    Scale,
    Source,
    Steps,
    Trace,
    constant,
    draw,
    duration,
    total,
    union,
)

from ..shared._places import place
from ..shared._rising_steps import grown_by_times, grown_in_rounds
from ..shared._words import count, percent
from ._growing_caches import CACHES, is_cache, of_cache

CONFIRMED = "measured pair on a CPU: a statistic over all outputs so far in each step against one at the end"

# What a running value gives back of ops that grow.
_GIVEN_BACK = constant("share.kept_value").value
_MOST_NAMED = 3  # lines
_ON_DEVICE, _ON_HOST = ("compute",), ("forward", "other_ops")


def check(
    growth: Growth,
    price: Price,
    lines: Lines,
    costs: LineCosts | None,
    metrics: MetricModules | None,
    record: RankRecord | None,
    *,
    min_share: float = 0.03,  # of the step in ops that grow: they keep growing, so even little is worth a look
) -> Iterator[Finding]:
    steps, scale, growing = price.ops.steps, price.scale, growth.ops
    if growing is not None and len(growing.rows):
        where = _lines_of(growing, lines, price.ops.trace)
        if where and metrics and where[0].place in {call.source.place for call in metrics.calls}:
            return  # a metric that is called copies all that it has kept: `called-metrics` tells it, with its fix
        claims: tuple[str, ...]
        if price.on_device and is_cache(growing, price):
            found = of_cache(growing, price)
            if found is not None and found.saving is not None and found.saving.high_us >= min_share * scale.step_us:
                yield found
            return
        if price.on_device:
            spent_us, claims = price.spent_us(growing.rows), _ON_DEVICE
        else:
            spent_us, claims = _on_host_us(growing, price.ops.trace, steps, costs, where), _ON_HOST
        spent_us *= _grown_share(growing, steps, record)
        bound_us = price.measured_us(claims)
        if min(spent_us, bound_us) >= min_share * steps.step_us:
            saving = _of_growth(min(spent_us, bound_us), record, price)
            yield _grown(growing, where, min(spent_us, bound_us), saving, claims, steps, scale)
            return
    if (work := growth.work).name and work.each_us[-1] - work.each_us[0] >= min_share * steps.step_us:
        yield _longer(work, price, lines)


def _longer(work: GrowingWork, price: Price, lines: Lines) -> Finding:
    """Ops without shapes, by the time of their kernels."""
    first_us, last_us = work.each_us[0], work.each_us[-1]
    spent_us, ours = price.spent_us(work.rows), price.ops.longer
    more_us = ours * (sum(work.each_us) / len(work.each_us) - first_us)
    where = lines.where_op(int(work.rows[-1]))
    return Finding(
        message=(
            f"`{work.name}`{place(where)} takes longer with every step: {duration(last_us)} of the device's time in "
            f"the last profiled step, {duration((last_us - first_us) / (len(work.each_us) - 1))} more each time, as "
            "if it processed all that was kept so far."
        ),
        saving=price.scale.saving(
            more_us, spent_us, "low: the kernels as short as in the first profiled step; high: without them"
        ),
        where=(where,) if where else (),
        facts={"ops": [work.name], "us": spent_us, "first_us": first_us, "last_us": last_us},
        fix=_RUNNING,
        claims=_ON_DEVICE,
    )


def _lines_of(growing: GrowingOps, lines: Lines, trace: Trace) -> tuple[Source, ...]:
    """The lines that ran most of these ops' time."""
    took: dict[Source, int] = {}
    for row in growing.rows.tolist():
        if (found := lines.where_op(row)) is not None:
            took[found] = took.get(found, 0) + int(trace.events.dur_ns[row])
    return tuple(sorted(took, key=lambda one: -took[one])[:_MOST_NAMED])


def _grown_share(growing: GrowingOps, steps: Steps, record: RankRecord | None) -> float:
    """The part of the ops that was not there in the first step; at least the part that came within the window."""
    if not growing.calls:
        return 1.0
    more = (growing.last - growing.first) / (steps.count - 1)
    window = [step for file in record.files if file.role == "profile" for step in file.steps.values()] if record else []
    at_first = max(growing.first - more * min(window, default=0), 0.0)
    return 1 - 2 * at_first / (growing.first + growing.last)


def _on_host_us(
    growing: GrowingOps, trace: Trace, steps: Steps, costs: LineCosts | None, where: tuple[Source, ...]
) -> float:
    """Time of these ops, or of their whole lines: what puts a long list of tensors together there has no shapes."""
    spans = union(trace.events.start_ns[growing.rows], trace.events.end_ns[growing.rows])
    beside_us = sum(line.us for line in costs.lines if line.source in where) if costs else 0.0
    return max(steps.per_step_us(total(spans)), beside_us)


def _of_growth(spent_us: float, record: RankRecord | None, price: Price) -> Saving:
    """By the times of the steps that were timed; where they do not tell, by the ops of the window.

    Its steps are a short piece of the run, and often an early one, when little has been kept.
    """
    start = "the steps as they were timed, against"
    if by_times := grown_by_times(record) if record else None:
        how = f"{start} those at the start; low: halfway through the run, high: at its end"
    elif by_times := grown_in_rounds(record.steps.unprofiled_us) if record else None:
        how = f"{start} the shortest, where the growth starts again; low: their mean, high: the longest"
    else:
        how = "the ops that grow, as they were in the window; low: minus what remains"
        return price.scale.saving(_GIVEN_BACK * spent_us, spent_us, how)
    return price.shares(*by_times, how, basis="measured")


def _grown(
    growing: GrowingOps,
    where: tuple[Source, ...],
    spent_us: float,
    saving: Saving,
    claims: tuple[str, ...],
    steps: Steps,
    scale: Scale,
) -> Finding:
    per_step = (growing.last - growing.first) / (steps.count - 1)
    does, of = ("runs more often", "calls") if growing.calls else ("processes more", "numbers")
    return Finding(
        message=(
            f"`{growing.names[0]}`{place(where[0] if where else None)} {does} with every step: {count(growing.last)} "
            f"{of} in the last profiled step, {count(per_step)} more each time, which takes "
            f"{duration(scale.scaled(spent_us))} of the step by now ({percent(spent_us / steps.step_us)})."
        ),
        saving=saving,
        where=where,
        facts={"ops": list(growing.names[:5]), of: growing.last, "more_per_step": per_step, "us": spent_us},
        fix=_ONCE if growing.calls else _RUNNING,
        claims=claims,
    )


_RUNNING = Fix(
    "Keep a running sum instead of all values",
    "numerics",
    "history.append(outputs.detach())\nmean = torch.cat(history).mean()",
    "total += outputs.detach().sum()\nnumber += outputs.numel()\nmean = total / number",
)


_ONCE = Fix(
    "Register hooks once, before the training loop, or remove them after the step",
    "exact",
    "for batch in loader:\n    layer.register_forward_hook(watch)",
    "layer.register_forward_hook(watch)\nfor batch in loader:",
)


def _of(numbers: int) -> Ev:
    return Ev("aten::std", dims=[[numbers]], dtypes=["float"])


def _hooks(calls: int) -> Ev:
    return Ev("aten::detach", times=calls)


_STEPS = """
    step   [1        ][2        ][3        ][4        ][5        ]
    cpu    [F ][P ][B ][F ][Q ][B ][F ][R ][B ][F ][S ][B ][F ][T ][B ]
    """
_HOOKED = """
    step   [1         ][2         ][3         ][4         ][5         ]
    cpu    [F ][P ][B ][F ][Q ][B ][F ][R ][B ][F ][S ][B ][F ][T ][B ]
    """
_MM = Ev("aten::linear", dims=[[64, 256], [1024, 256], [1024]], dtypes=["float"] * 3)


def _sorted(length: int) -> Ev:
    return Ev("aten::linear", dims=[[length, 256], [64, 256], [64]], dtypes=["float"] * 3)


def _in_line(metric: str) -> Drawing:
    """The recorded lines of a step: the layer in one, and in the next the growing op, in a range of that name."""
    return draw(
        """
        step   [1        ]
        cpu    [C ][D    ]
        cpu    [F ][N ][B]
        cpu        [V]
        cpu        [P]
        """,
        us=100,
        C=Ev("advisor:line|train.py|30|train", "user_annotation"),
        D=Ev("advisor:line|train.py|31|train", "user_annotation"),
        N=Ev(metric, "user_annotation"),
        V=Ev("advisor:computes|Scores", "user_annotation"),
        F=_MM,
        P=_of(4096),
    )


def _on_device(kernel: Ev, op: str, inside: str = "") -> Drawing:
    """Five steps, in each of which this op's kernel takes 200 µs more than in the one before."""
    return draw(
        """
        step   [1                  ][2                  ][3                  ][4                  ][5                  ]
        cpu    [F][C]               [F][C]               [F][C]               [F][C]               [F][C]
        cpu       [I]                  [I]                  [I]                  [I]                  [I]
        gpu 7   [G   ][K]            [G   ][K  ]          [G   ][K    ]        [G   ][K      ]      [G   ][K        ]
        """,
        us=100,
        F="aten::layer_norm",
        C=Ev(op, launches="") if inside else op,
        I=inside or Ev("aten::view", launches=""),
        G=ELEMENTWISE,
        K=kernel,
    )


EXAMPLES = [
    *CACHES,
    Example(
        "a statistic over all outputs so far",
        draw(_STEPS, us=100, F=_MM, P=_of(4096), Q=_of(8192), R=_of(12288), S=_of(16384), T=_of(20480)),
        saves_us=(180, 400),
        says=("20,480 numbers", "4,096 more each time"),
    ),
    Example(
        "a metric that is called in each step, and copies what it has kept: another rule has its fix",
        draw(_STEPS, us=100, F=_MM, P=_of(4096), Q=_of(8192), R=_of(12288), S=_of(16384), T=_of(20480)),
        facts={"model": {"modules": []}},
        lines=_in_line("advisor:metric|scores|Scores"),
        near_miss=True,
    ),
    Example(
        "the same in a function that is no metric",
        draw(_STEPS, us=100, F=_MM, P=_of(4096), Q=_of(8192), R=_of(12288), S=_of(16384), T=_of(20480)),
        facts={"model": {"modules": []}},
        lines=_in_line("advisor:call|scores"),
        saves_us=(180, 800),
        says=("train.py:31",),
    ),
    Example(
        "the same, and the steps were seen to grow from 2.5 ms to 5 ms",
        draw(_STEPS, us=100, F=_MM, P=_of(4096), Q=_of(8192), R=_of(12288), S=_of(16384), T=_of(20480)),
        facts={
            "steps": {
                "unprofiled_us": [2500.0 + 12.5 * step for step in range(200)],
                "timed_before": 100,
                "count": 205,
            },
            "files": [
                {"path": "trace", "role": "profile", "steps": {f"ProfilerStep#{n}": 100 + n for n in range(1, 6)}}
            ],
        },
        saves_us=(950, 1550),
        says=("20,480 numbers",),
    ),
    Example(
        "the same, and begun anew in each epoch of 50 steps: from 2 ms to 4.45 ms",
        draw(_STEPS, us=100, F=_MM, P=_of(4096), Q=_of(8192), R=_of(12288), S=_of(16384), T=_of(20480)),
        facts={"steps": {"unprofiled_us": [2000.0 + 50.0 * (step % 50) for step in range(200)]}},
        saves_us=(1100, 1700),
        says=("20,480 numbers",),
    ),
    Example(
        "a hook more in each step: two to six calls of 200 us, of which the first step had one",
        draw(_HOOKED, us=100, F=_MM, P=_hooks(2), Q=_hooks(3), R=_hooks(4), S=_hooks(5), T=_hooks(6)),
        facts={"files": [{"path": "trace", "role": "profile", "steps": {f"ProfilerStep#{n}": n for n in range(1, 6)}}]},
        saves_us=(30, 400),
        says=("runs more often", "6 calls", "1 more each time"),
        fixes=("Register hooks once",),
    ),
    Example(
        "a loop of another length in each step",
        draw(_HOOKED, us=100, F=_MM, P=_hooks(2), Q=_hooks(4), R=_hooks(5), S=_hooks(3), T=_hooks(6)),
        near_miss=True,
    ),
    Example(
        "sequences that happen to come sorted by length",
        draw(
            """
            step   [1        ][2        ][3        ][4        ][5        ]
            cpu    [P ][B ]   [Q ][B ]   [R ][B ]   [S ][B ]   [T ][B ]
            """,
            us=100,
            P=_sorted(8),
            Q=_sorted(16),
            R=_sorted(24),
            S=_sorted(32),
            T=_sorted(40),
        ),
        near_miss=True,
    ),
    Example(
        "lists of tensors, which have no shapes, put together on a device",
        _on_device(ELEMENTWISE, "aten::cat"),
        saves_us=(390, 710),
        says=("`aten::cat`", "200 µs more each time"),
    ),
    Example(
        "a compiled region with such products",
        _on_device(GEMM, "Torch-Compiled Region: 0/0", inside="aten::mm"),
        near_miss=True,
    ),
    Example(
        "products that take longer with every step: longer sequences",
        _on_device(GEMM, "aten::mm"),
        None,
        near_miss=True,
    ),
    Example(
        "the same in every step", draw(_STEPS, us=100, F=_MM, P=_of(64), Q=_of(64), R=_of(64), S=_of(64), T=_of(64))
    ),
]

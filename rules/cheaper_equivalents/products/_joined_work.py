"""The time of calls that one call for all would replace, and the work in it that this one has as well."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from advisor.api import AUTOGRAD_NODE, Category, Intervals, Ints, Missing, Price, StepOps, constant, union, work_of

# What a joined product takes of its arithmetic at the rate of large matrices.
_JOINED = constant("layers.joined").range
# Products that took so many times what explains them waited for a core, and so did the calls that would be saved.
_BUSY = constant("calls.busy_times").value


def spans_of(ops: StepOps, rows: Ints) -> Intervals:
    """From the first to the last of the rows that follow each other in a step, no other op of the thread between."""
    start_ns, end_ns = ops.events.start_ns, ops.events.end_ns
    at = np.flatnonzero(np.isin(ops.outermost, rows))
    mine = ops.outermost[at]
    ends = np.flatnonzero((np.diff(at) > 1) | (np.diff(ops.steps.step_of(start_ns[mine])) != 0))
    return union(start_ns[mine[np.append(0, ends + 1)]], end_ns[mine[np.append(ends, len(mine) - 1)]])


def joined_us(price: Price, rows: Ints, few_samples: bool) -> tuple[float, float]:
    """(least, most) µs per step of what the ops in these rows do besides being called, in one op for all.

    Products at the rate of this machine (least: of all cores; most: of one), times what joined ones were measured to
    take; never more than recorded: the median of their form, beyond a call on a few numbers. Other ops: the fastest,
    and the median, of their form.
    """
    ops, events, known = price.ops, price.ops.events, price.added.calibration
    leaves = _leaves(ops, rows)
    held = _held(ops, leaves)
    call, product = known.op_call_us.low, (known.product_call_us or known.op_call_us).low
    slow, quick = known.core_fp32_gflops, known.fp32_gflops or known.core_fp32_gflops
    by_form: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in leaves.tolist():
        by_form[int(events.name[row]), int(events.dims[row])].append(row)
    least = most = taken = explained = 0.0
    for same in by_form.values():
        took_us = events.dur_ns[same] / 1e3
        work = work_of(events, same[0])
        flops = work.flops if work else 0.0
        bare = (product if flops else call) + known.profiler_row_us.low * float(np.median(held[same]))
        median = float(np.median(took_us))
        typical = max((float(took_us.mean()) if few_samples else median) - bare, 0.0)
        best = _JOINED[0] * flops / (1e3 * quick.high) if flops else max(float(took_us.min()) - bare, 0.0)
        stays = not flops or (few_samples and "convolution" in events.text(same[0]))
        worst = typical if stays else _JOINED[1] * flops / (1e3 * slow.low)
        least += len(same) * min(best, typical)
        most += len(same) * min(worst, typical)
        if work and events.text(same[0]) in _PRODUCTS:  # a convolution's call takes far longer than a small one's work
            taken += float(took_us.sum())
            # Thin products read and write more than they multiply.
            moved = work.bytes / (1e3 * known.core_memory_gbs.low)
            explained += len(same) * (median if few_samples else max(flops / (1e3 * slow.low), moved) + bare)
    if taken * price.scale.factor > _BUSY * explained > 0:
        raise Missing(
            f"matrix products took {taken * price.scale.factor / explained:.0f} times as long as their work "
            "explains: the machine was busy with other work; run again when it is idle"
        )
    return least / ops.steps.count, most / ops.steps.count


def _leaves(ops: StepOps, rows: Ints) -> Ints:
    """The ops inside these rows, and of these rows themselves, that hold no other op; products with what is inside."""
    events, nesting = ops.events, ops.nesting
    chosen = np.zeros(len(events), bool)
    chosen[rows] = True
    counted = events.of(Category.CPU_OP) & (chosen | nesting.within(chosen))
    counted &= ~events.named(AUTOGRAD_NODE, "torch::autograd::")
    holds = np.zeros(len(events), bool)
    holds[nesting.parent[events.of(Category.CPU_OP) & (nesting.parent >= 0)]] = True
    whole = np.array([name in _WHOLE for name in events.names], bool)[events.name]
    rows = np.flatnonzero(counted & (whole | ~holds))
    return rows[nesting.ancestor_of(nesting.parent[rows], whole) < 0]


def _held(ops: StepOps, rows: Ints) -> Ints:
    """By row of the trace how many ops these rows hold, themselves included: the profiler recorded each."""
    chosen = np.zeros(len(ops.events), bool)
    chosen[rows] = True
    around = ops.nesting.ancestor(chosen)[ops.events.of(Category.CPU_OP)]
    return np.bincount(around[around >= 0], minlength=len(ops.events))


_PRODUCTS = frozenset(("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"))
_ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"
# Ops whose work is known, and that run others for the form of what they read.
_WHOLE = _PRODUCTS | {"aten::convolution", "aten::convolution_backward", _ATTENTION, f"{_ATTENTION}_backward"}

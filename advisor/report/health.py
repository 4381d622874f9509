"""How far the input can be trusted: statements in words, for every report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from advisor.analyses.base.cadence import NOTABLE
from advisor.analyses.base.device import Device
from advisor.analyses.base.launched import Launched
from advisor.analyses.base.links import Links
from advisor.analyses.base.lost_records import lost_launches
from advisor.analyses.base.scale import Scale
from advisor.analyses.base.steps import Steps
from advisor.analyses.base.training import Training
from advisor.analyses.costs.replay import Replay
from advisor.analyses.step.gpu_idle import GpuIdle
from advisor.analyses.step.stalled_steps import Spent, spent_in
from advisor.calibration.calibration import Calibration
from advisor.capture.record import RankRecord, RunRecord
from advisor.constants import constant
from advisor.model import Health
from advisor.quantities import duration
from advisor.report import memory_end
from advisor.trace.events import Category, Trace

# How many times longer the profiler alone makes steps of many ops.
_DISTURBED = constant("profiler.most_times").value
# From here on what the profiler added is stated.
_STATED = 1.2
# What recording a row takes at most; an op that launches a kernel has two, its own and that of the launch.
_MOST_ROW_US = constant("profiler.most_row_us").value
_ROWS_OF_AN_OP = 2
# Steps on either side of the window, from which on two medians of them can be compared, and what they may differ by.
_FEW = 20
_SLOWER = 1.05
# Between two kernels of a full queue lie some µs; what is longer, and a share of the step that is worth a sentence.
_LONG_GAP_US = 100.0
# Old traces hold whole µs. In the real traces at hand no work starts less than 4 µs after its call.
_ROUNDED_US = 1.0
_SEEN = 0.05
# Nine of ten scripts on a machine that did nothing else waited less than a twentieth of a step for a core; beside two
# workers on two cores a quarter to a third, beside other work half of it and more.
_BUSY = 0.2


def of_rank(
    trace: Trace,
    record: RankRecord | None,
    steps: Steps,
    scale: Scale,
    device: Device,
    replay: Replay | None,
    launched: Launched,
) -> tuple[Health, ...]:
    """What must be known before the figures of one rank are believed."""
    said = list(trace.health)
    if record is not None and record.out_of_memory is not None:
        said.insert(0, Health("out-of-memory", "warning", memory_end.sentence(record.out_of_memory)))
    if steps.source == "window":
        text = "no step boundaries were found; all figures describe the whole recorded window as one step"
        said.append(Health("steps", "note", text))
    if steps.source == "repetition":
        text = f"nothing marks steps in this trace; {steps.count} repetitions of the same ops are treated as steps"
        said.append(Health("steps", "note", text))
    if record is None and not Training.compute(trace).seen and trace.events.of(Category.CPU_OP).any():
        text = (
            "no backward pass and no optimizer step was recorded: this is inference, or part of a training step; "
            "rules about training do not apply"
        )
        said.append(Health("forward-only", "note", text))
    if steps.cut_off:
        text = "the last step has no ops, because the recording ended when it began; it is not counted"
        said.append(Health("last-step", "note", text))
    said.extend(_lost(trace, steps, device, launched))
    said.extend(_stalled(trace, steps, record))
    said.extend(_odd(steps))
    said.extend(_startup(steps))
    said.extend(_pace(steps))
    if device.why:
        said.append(Health("device", "note", device.why))
    if record is None:
        text = "step times include profiler overhead; `advisor run` also times steps without the profiler"
        said.append(Health("unprofiled", "note", text))
    said.extend(_dilation(trace, steps, scale, device, record))
    said.extend(_after_the_window(record, device))
    said.extend(_waits(record))
    if replay is not None and replay.notes:
        text = f"replayed savings assume dependencies that this trace does not record: {'; '.join(replay.notes)}"
        said.append(Health("replay", "note", text))
    said.extend(Health("capture", "note", note) for note in (record.notes if record else ()))
    return tuple(said)


def _stalled(trace: Trace, steps: Steps, record: RankRecord | None) -> Iterator[Health]:
    """That some steps are in no share, because they take many times as long as the others."""
    if not steps.stalls_us:
        return
    which = "a profiled step is" if len(steps.stalls_us) == 1 else f"{len(steps.stalls_us)} profiled steps are"
    why = "as steps do not differ that much without the profiler"
    if record is None:
        usual = duration(float(np.median(steps.profiled_us)))
        why = (
            f"where others take {usual}: {_doing(spent_in(trace, steps))}; shares are of the mean of the others; "
            "`advisor run` measures how often that happens, and where"
        )
    text = f"{which} left out: up to {duration(max(steps.stalls_us))} long, {why}"
    yield Health("stalled-steps", "note", text)


def _doing(spent: Spent) -> str:
    """What takes most of the time by which steps are longer than others; where that is not recorded, what may."""
    if spent.waits_for_loader:
        return "most of it in the DataLoader"
    if spent.where:
        return f"most of it in {spent.where.function}() at {spent.where.file}:{spent.where.line}"
    if spent.range_name:
        return f"most of it in the range `{spent.range_name}`"
    return "an evaluation, a checkpoint, a compilation, a late first batch or the garbage collector may have delayed it"


def _odd(steps: Steps) -> Iterator[Health]:
    """That one step is far longer than the others, and yet in all shares."""
    if steps.odd is None:
        return
    times = np.array(steps.profiled_us)
    rest = np.delete(times, steps.odd)
    usual = " to ".join(dict.fromkeys((duration(float(rest.min())), duration(float(rest.max())))))
    text = (
        f"one of the {steps.count} recorded steps, {steps.labels[steps.odd]}, takes "
        f"{duration(float(times[steps.odd]))} where others take {usual}; whether that is usual, this recording does "
        "not show, so it is in all shares; waits that lie mostly in it are reported without a saving"
    )
    yield Health("uneven-steps", "note", text)


def _lost(trace: Trace, steps: Steps, device: Device, launched: Launched) -> Iterator[Health]:
    """Work of the device that was launched, and is not in the trace."""
    number = len(lost_launches(trace, launched)) if trace.device_work.any() else 0
    if not number:
        return
    rest = "their time counts as idle time of an unknown cause"
    if not device.measured:
        rest = "nothing is said of the device"
    elif steps.lost:
        which = "step that lost more than a few is" if steps.lost == 1 else "steps that lost more than a few are"
        rest = f"{steps.lost} {which} left out; else {rest}"
    text = f"records of the device were lost: {number:,} launches have no kernel in the trace; {rest}"
    yield Health("lost-records", "warning", text)


def _dilation(trace: Trace, steps: Steps, scale: Scale, device: Device, record: RankRecord | None) -> Iterator[Health]:
    """What the profiler added to a step, and whether the rows that it recorded explain it."""
    # Mean by mean: in a script whose steps differ the median is below both.
    profiled_us, plain_us = scale.profiled.mean, scale.unprofiled.mean
    if not profiled_us or not plain_us or profiled_us < _STATED * plain_us:
        return
    inside = steps.step_of(trace.events.start_ns) >= 0
    rows = float((inside & trace.events.of(Category.CPU_OP, Category.RUNTIME, Category.ANNOTATION)).sum()) / steps.count
    times, row_us = profiled_us / plain_us, (profiled_us - plain_us) / max(rows, 1.0)
    said = f"the profiler made steps {times:.1f} times as long"
    if row_us > _most_row_us(record) or (times > _DISTURBED and not device.measured):
        text = (
            f"{said}, more than recording {rows:,.0f} events on the host explains ({row_us:.1f} µs each): parts "
            "of the step may be wrong, and other processes may have run at the same time; run again on an idle "
            "machine"
        )
        yield Health("dilation", "warning", text)
        return
    shares = "; the times of kernels and copies are used as recorded, and only waits for the host are corrected"
    text = (
        f"{said}: recording {rows:,.0f} events on the host took {row_us:.1f} µs each{shares if device.measured else ''}"
    )
    yield Health("dilation", "note", text)


def of_clocks(trace: Trace, links: Links | None) -> tuple[Health, ...]:
    """That work of the device starts before the call that launched it, which only two clocks can show."""
    if links is None:
        return ()
    works = np.flatnonzero(trace.device_work & (links.launch >= 0))
    delay_us = (trace.events.start_ns[works] - trace.events.start_ns[links.launch[works]]) / 1e3
    early = delay_us < -_ROUNDED_US
    if not early.any():
        return ()
    text = (
        f"the clocks of host and device differ by at least {duration(float(-delay_us.min()))}: {early.mean():.0%} of "
        "device events start before the calls that launched them; causes of idle time and of waits for the device may "
        "be wrong by as much"
    ).replace("%", " %", 1)
    return (Health("clocks", "warning", text),)


def of_gaps(steps: Steps, links: Links | None, idle: GpuIdle | None) -> tuple[Health, ...]:
    """That the device seems idle where it cannot wait for the host: its next work had been launched before."""
    if links is None or idle is None:
        return ()
    gaps = idle.gaps
    launch = np.where(gaps.before >= 0, links.launch[np.maximum(gaps.before, 0)], -1)
    queued = (launch >= 0) & (gaps.events.end_ns[np.maximum(launch, 0)] < gaps.start_ns)
    lengths_us = gaps.us(np.flatnonzero(queued))
    us = float(lengths_us[lengths_us >= _LONG_GAP_US].sum()) / idle.steps_count
    if us < _SEEN * steps.step_us:
        return ()
    text = (
        f"for {_ms(us)} of each step ({us / steps.step_us:.0%}) the device appears idle although its next work was "
        "already launched, often within a CUDA graph. It ran work that is not in the trace, such as another process's "
        "(`nvidia-smi` lists those on this GPU), or waited for another device; no rule counts this time"
    ).replace("%", " %", 1)
    return (Health("hidden-work", "note", text),)


def _most_row_us(record: RankRecord | None) -> float:
    """What recording a row takes at most, µs: as chosen for all machines, or more where this one was measured to."""
    op = Calibration.compute(record).profiler_device_op_us
    return max(_MOST_ROW_US, op.high / _ROWS_OF_AN_OP if op is not None else 0.0)


def _after_the_window(record: RankRecord | None, device: Device) -> Iterator[Health]:
    """That what records a GPU stays in the process when the recording has ended, and what that costs there."""
    times_us = record.steps.unprofiled_us if record else []
    first = (record.steps.timed_before or 0) if record else 0
    if device.kind != "cuda" or min(first, len(times_us) - first) < _FEW:
        return
    # Kineto does not detach NVIDIA's CUPTI when a profile ends: https://github.com/pytorch/pytorch/issues/144455.
    # TEARDOWN_CUPTI=1 would: libkineto/src/CuptiActivityApi.cpp; torch sets it to 0 beside CUDA graphs before CUDA
    # 12.6 (torch/profiler/profiler.py, start_trace), where it ends the process.
    times = float(np.median(times_us[first:]) / np.median(times_us[:first]))
    if times >= _SLOWER:
        text = (
            f"steps after the recording took {times:.2f} times as long as before it: the profiler's CUPTI stays "
            "loaded until the process ends, which slows only this run; `TEARDOWN_CUPTI=1` in the environment unloads "
            "it (not with CUDA graphs before CUDA 12.6)"
        )
        yield Health("after-the-window", "note", text)


def _startup(steps: Steps) -> Iterator[Health]:
    """What was left out as start-up, or that nothing else was recorded."""
    startup = steps.startup
    if not startup.calls and not startup.steps:
        return
    calls = ", ".join(f"{name} {_ms(us)} ({number}x)" for name, us, number in startup.calls)
    of = f": {calls}" if calls else ": far longer than any later step"
    if not startup.steady:
        text = (
            f"{_ms(startup.us)} of the recorded window are start-up{of}. No later step was recorded, so the step "
            "time is not known and no saving is estimated; record steps after the first ones"
        )
        yield Health("not-steady", "warning", text)
        return
    which = "the first step is" if startup.steps == 1 else f"the first {startup.steps} steps are"
    left = (
        f"{which} start-up and not included in any figure"
        if startup.steps
        else "start-up before the steps is not included in any figure"
    )
    yield Health("start-up", "note", f"{left}, {_ms(startup.us)}{of}")


def _pace(steps: Steps) -> Iterator[Health]:
    """That the device takes longer for a step than the host takes to issue it."""
    host_us, device_us = steps.usual_us
    # Where the host waits for the device in each step, both are equally fast, however far the device is behind.
    if not steps.is_ahead or device_us is None or device_us <= (1 + NOTABLE) * host_us:
        return
    yield Health(
        "host-ahead",
        "note",
        f"the host issues a step every {_ms(host_us)}, the device completes one every {_ms(device_us)} "
        "(medians): the step time is that of the device, from the end of the work of one step to the end of the next",
    )


def _ms(us: float) -> str:
    return f"{us / 1e3:.3g} ms" if us < 1e6 else f"{us / 1e6:.3g} s"


def _waits(record: RankRecord | None) -> Iterator[Health]:
    """That the loop had to wait for a core in the steps that give the step time, as the system counted it."""
    vitals = record.vitals if record else None
    if vitals is not None and vitals.window_waited is not None and vitals.window_waited >= _BUSY:
        which = (
            f"the least disturbed of {vitals.windows} profiled windows" if vitals.windows > 1 else "the profiled window"
        )
        text = (
            f"the training loop waited {vitals.window_waited:.0%} of {which} for a CPU core: other work affects the "
            "shares of the step; run again when the machine is idle"
        ).replace("%", " %", 1)
        yield Health("busy-window", "warning", text)
    if vitals is None or not vitals.loop_queued_us or not vitals.timed_us:
        return
    share = min(vitals.loop_queued_us / vitals.timed_us, 1.0)
    if share >= _BUSY:
        text = (
            f"the training loop waited {share:.0%} of its time for a CPU core, even without the profiler: other work "
            "on this machine, or more threads and workers than cores; step times include this wait"
        ).replace("%", " %", 1)
        yield Health("busy-cores", "warning", text)


def of_job(run: RunRecord | None, job: Sequence[Health], ranks: Iterable[Health]) -> tuple[Health, ...]:
    """The statements of the pre-flight, of the job as a whole and of its ranks, each once."""
    status = {"ok": "ok", "note": "note", "warning": "warning", "error": "error"}
    said = [
        Health(item.get("id", "preflight"), status.get(item.get("status", ""), "note"), item.get("message", ""))  # type: ignore[arg-type]
        for item in (run.preflight if run else ())
    ]
    said.extend(job)
    said.extend(ranks)
    return tuple(dict.fromkeys(said))

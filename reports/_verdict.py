"""The headline: how long a step takes, what it is limited by, and what could be reached. Words from numbers only."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from advisor.api import BreakdownItem, Report, Times, dataclass, significant

from . import _labels, _run_account, _words

# From this difference on, mean and median tell two stories: throughput follows the mean, so the tail is named.
TAIL_SHARE = 0.10
# Below 80 % of the step a GPU is not called busy; a loss under 10 % is not the headline's second half.
_BUSY_SHARE = 0.80
_WORTH_NAMING = 0.10
# Within half a per cent of none or of all, a joint saving is a bound, not an estimate.
_SURE_SHARE = 0.005
# Deciles of fewer steps than ten are no deciles.
_SPREAD_STEPS = 10

_DOES = {
    "exposed_communication": "it only communicates",
    "exposed_copy": "it only copies",
    "idle_input": "it waits for the next batch",
    "idle_sync": "it is idle after host synchronizations",
    "idle_launch": "it waits for the host to launch work",
    "idle_host": "it waits for Python and other host work",
    "idle_unknown": "it is idle without a known cause",
}
_TAKES = {
    "input": "waiting for the next batch",
    "communication": "communication",
    "forward": "the forward pass",
    "backward": "the backward pass",
    "optimizer": "the optimizer",
    "other_ops": "other operators",
    "host": "Python code between operators",
}


@dataclass(frozen=True, slots=True)
class Headline:
    """The first lines of every output.

    step       the step time, or "not measured"; step_us the same as a number
    whole      what that time is of: "step", or "recorded window" where no steps were found
    basis      what that number is: median of how many steps, with or without the profiler
    spread     p10 and p90, or ""
    tail       one sentence where mean and median differ by more than 10 %, else ""
    verdict    one or two sentences
    caveats    what was not measured and why, one sentence each
    """

    step: str
    step_us: float | None
    whole: str
    basis: str
    spread: str
    tail: str
    verdict: str
    caveats: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reach:
    """The step after all fixes together, in words.

    about is "" where the fixes may also give nothing, or are bounded by the step alone: then only the range is said.
    fixes: which ones; savings of rules that nothing has confirmed yet are in no such sum.
    """

    fixes: str
    range: str
    about: str
    saved: str
    basis: str


def headline(report: Report) -> Headline:
    """The headline of a report."""
    metric = report.metrics.get("step_time_us")
    step_us = metric.value if metric and metric.status == "measured" else None
    times, profiled = _times(report)
    return Headline(
        step=_words.time(step_us) if step_us is not None else "not measured",
        step_us=step_us,
        whole=noun(report),
        basis=_basis(report, times, profiled, step_us) if step_us is not None else (metric.why if metric else ""),
        spread=_spread(times),
        tail=_tail(times, step_us, profiled, _all_steps(report, times)),
        verdict=" ".join(filter(None, (_run_account.beside_steps(report), _verdict(report)))),
        caveats=_caveats(report),
    )


def subject(report: Report) -> str:
    """What was looked at: the command, else the trace."""
    if report.run.command:
        return _words.one_line(" ".join(_words.path(word) for word in report.run.command))
    files = report.run.files
    if not files:
        return "no input"
    return _words.path(files[0]) + (f" and {len(files) - 1} more" if len(files) > 1 else "")


def _changes_steps(report: Report) -> bool:
    """Whether a fix behind the joint saving changes the training, and so perhaps what a step is (a larger batch)."""
    found = (f for o in report.outcomes if o.confirmed for f in o.findings if f.recoverable and f.saving)
    return any(finding.fix is not None and finding.fix.risk == "semantics" for finding in found)


def step_words(report: Report) -> str:
    """The step time with what it is the time of."""
    said = headline(report)
    if said.step_us is None:
        return "Step time not measured"
    return said.step if report.steps.source == "window" else f"{said.step} per step"


def reach(report: Report) -> Reach | None:
    """What all fixes together could reach, or None where it was not computed."""
    joint, step_us = report.joint, headline(report).step_us
    if joint is None or not step_us or joint.high_us <= 0:
        return None
    low, high = max(step_us - joint.high_us, 0.0), max(step_us - joint.low_us, 0.0)
    today = ", for the samples of a current step" if _changes_steps(report) else ""
    least, most = joint.low_us / step_us, min(joint.high_us / step_us, 1.0)
    # No single figure where all of it may give nothing, nor where the upper bound is the whole step: both are bounds.
    narrow = least >= _SURE_SHARE and most < 1 - _SURE_SHARE
    if least < _SURE_SHARE:
        saved = f"up to {_words.share(most)}"
    else:
        saved = _words.share_range(least, most) if narrow else f"at least {_words.share(least)}"
    left_out = any(f.saving and f.saving.high_us for o in report.outcomes if not o.confirmed for f in o.findings)
    return Reach(
        fixes=f"all{' confirmed' if left_out else ''} fixes together",
        range=_words.time_range(low, high, step_us).replace("up to", "at most"),
        about=_words.time_at(joint.step_us_after, step_us) if narrow else "",
        saved=saved,
        basis=_labels.BASES[joint.basis].name + today,
    )


def parts(report: Report) -> tuple[BreakdownItem, ...]:
    """The breakdown on the scale of the headline: times are shares of the step time.

    So that a part and the saving that it bounds show the same number, although profiled steps are slower.
    """
    step_us = headline(report).step_us
    if step_us is None:
        return report.breakdown
    return tuple(replace(item, us=item.share * step_us) for item in report.breakdown)


def is_on_device(report: Report) -> bool:
    """Whether the breakdown describes a device, not only a CPU."""
    return any(item.id == "compute" or item.id.startswith("idle_") for item in report.breakdown)


def noun(report: Report) -> str:
    """What the shares are of."""
    return "recorded window" if report.steps.source == "window" else "step"


def _times(report: Report) -> tuple[Times, bool]:
    """The distribution behind the headline's number, and whether the profiler was on."""
    steps = report.steps
    if steps.unprofiled_us.median is not None or steps.unprofiled_us.mean is not None:
        return steps.unprofiled_us, False
    return steps.profiled_us, True


def _is_mean(times: Times, step_us: float | None, profiled: bool) -> bool:
    """Whether the headline's number is the mean of the steps, as in a trace in which long ones recur."""
    if times.median is None or times.mean is None or step_us is None:
        return times.median is None
    return profiled and abs(step_us - times.mean) < abs(step_us - times.median)


def _basis(report: Report, times: Times, profiled: bool, step_us: float) -> str:
    if report.steps.source == "window":
        return "the whole recorded window: no steps were found in it"
    word = "profiled" if profiled else "un-profiled"
    if times.n == 1:
        return f"one {word} step"
    which = "mean" if _is_mean(times, step_us, profiled) else "median"
    return f"{which} of {_words.plural(times.n, f'{word} step')}" if times.n else f"{which} {word} step"


def _spread(times: Times) -> str:
    if times.p10 is None or times.p90 is None or times.n < _SPREAD_STEPS:
        return ""
    return f"8 of 10 steps take {_words.time_range(times.p10, times.p90)}"


def _all_steps(report: Report, times: Times) -> tuple[int, float] | None:
    """(training steps of the whole run, their mean in µs), where it was watched and has more than were timed."""
    parts = report.account.parts if report.account else ()
    training = next((part for part in parts if part.id == "training" and part.times), None)
    if training is None or not training.times or training.times <= times.n:
        return None
    return round(training.times), training.us / training.times


def _tail(times: Times, step_us: float | None, profiled: bool, whole: tuple[int, float] | None) -> str:
    median, mean = times.median, whole[1] if whole else times.mean
    if mean is None or not median or abs(mean / median - 1) <= TAIL_SHARE:
        return ""
    of = f"of all {_words.count(whole[0])} training steps" if whole else "step"
    ratio, said = mean / median, f"The mean {of} is {_words.time(mean)}"
    if ratio < 1:
        if _is_mean(times, step_us, profiled):
            return f"The median step is {_words.time(median)}: some steps are much faster. Shares are of all steps."
        return f"{said}, {_words.share(1 - ratio)} below the median: some steps are much faster."
    if _is_mean(times, step_us, profiled):
        return f"The median step is {_words.time(median)}: some steps are much slower. Shares are of all steps."
    slower = "some steps are much slower, and throughput depends on the mean"
    above = f"{significant(ratio)} times the median" if ratio >= 2 else f"{_words.share(ratio - 1)} above the median"
    together = " Shares are of the total time of all steps." if ratio >= 2 and profiled else ""
    return f"{said}, {above}: {slower}.{together}"


def _verdict(report: Report) -> str:
    if not report.breakdown:
        return f"Where the time of the {noun(report)} goes was not measured."
    if not report.steps.steady:
        return f"{_words.time(report.steps.startup_us)} of it are start-up: no share describes a training step."
    return _device_verdict(report) if is_on_device(report) else _cpu_verdict(report)


def _device_verdict(report: Report) -> str:
    shares = {item.id: item.share for item in report.breakdown}
    compute = shares.pop("compute", 0.0)
    losses = sorted(((value, name) for name, value in shares.items()), reverse=True)
    named = [(value, name) for value, name in losses if value >= _WORTH_NAMING][:2]
    who = f"GPU of rank {report.run.reference_rank}" if len(report.ranks) > 1 else "GPU"
    only = "" if compute >= _BUSY_SHARE else "only "
    said = f"The {who} computes for {only}{_words.share(compute)} of the {noun(report)}"
    if not named:
        if compute >= _BUSY_SHARE:
            return f"{said}: it is compute-bound, so only less or cheaper computation makes it faster."
        return f"{said}; no single cause takes {_words.share(_WORTH_NAMING)} or more of the rest."
    causes = [f"for {_words.share(value)} {_DOES.get(name) or _labels.part(name).name}" for value, name in named]
    return f"{said}; {', and '.join(causes)}."


def _cpu_verdict(report: Report) -> str:
    parts = sorted(((item.share, item.id) for item in report.breakdown), reverse=True)
    named = [(value, name) for value, name in parts if value >= _WORTH_NAMING][:2]
    if not named:
        return f"On the CPU, no single part takes {_words.share(_WORTH_NAMING)} of the {noun(report)}."
    words = [f"{_TAKES.get(name, _labels.part(name).name)} ({_words.share(value)})" for value, name in named]
    busy = report.metrics.get("device_busy_share")
    if report.run.devices and busy is not None and busy.status == "not_measured":
        # A device was there, but nothing is known of its work: what looks like host time may be waiting for it.
        unseen = " and ".join(report.run.devices)
        return f"The host spends the {noun(report)} mostly in {_words.listed(words)}, perhaps waiting for {unseen}."
    return f"On the CPU, the {noun(report)} goes mostly to {_words.listed(words)}."


def _pace(report: Report) -> Iterator[str]:
    """Both times of a step where the host does not wait for the device."""
    for item in report.health:
        if item.id == "host-ahead" and report.steps.host_us and report.steps.device_us:
            host, device = _words.time(report.steps.host_us), _words.time(report.steps.device_us)
            yield f"The host issues a step every {host}, the GPU completes one every {device}; the GPU's time counts."
            return


# Past this error a replay is not trusted, whatever it links.
_TRUSTED = 0.05


def _caveats(report: Report) -> tuple[str, ...]:
    said = []
    busy = report.metrics.get("device_busy_share")
    if busy is not None and busy.status == "not_measured" and busy.why:
        said.append(f"The device was not measured ({busy.why.rstrip('.')}).")
    if report.steps.steady and report.steps.startup_us:
        first = report.steps.startup_count
        steps = "the first step" if first == 1 else f"the first {first} steps"
        when = f"in {steps}" if first else "before the steps"
        said.append(f"{_words.time(report.steps.startup_us)} of start-up {when} are not included in any figure.")
    said.extend(_pace(report))
    if not report.steps.steady:
        said.append("No saving is estimated; record steps after the first ones.")
    elif report.replay is not None and report.replay.low_confidence:
        why = "no complete steps were recorded"
        if report.steps.source != "window" and report.steps.count > 1:
            error = _words.share(report.replay.error_share)
            why = f"the replay of the unchanged step differs from its measured time by {error}"
            if report.replay.error_share <= _TRUSTED:
                why = "the trace does not record what launched most of the device's work"
        elif report.steps.source != "window":
            why = "there is only one step to replay"
        said.append(f"Savings have low confidence: {why}.")
    return tuple(said)

"""The nouns of a report: frozen, slotted, and exactly what report.json holds.

Every output (page, terminal, SARIF, gate) is a pure function of a `Report`. Names and units here are a contract:
additive changes only, and a change of meaning raises `VERSION`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

SCHEMA = "torch-advisor/report"
VERSION = 1
# An end below half a per cent of the step is nothing: it would be shown as 0 %, and half of 188 scripts that were run
# five times each did not repeat their step time within 2.2 %.
NOTHING_SHARE = 0.005

Unit = Literal["us", "share", "count", "bytes", "ratio", "per_second"]
Severity = Literal["high", "medium", "low"]
Status = Literal["found", "clear", "skipped", "error"]
Basis = Literal["replayed", "measured", "modelled", "assumed"]
Risk = Literal["exact", "numerics", "semantics"]
StepSource = Literal["user", "loader", "optimizer", "backward", "repetition", "window"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One quantity: measured (zero included), or not measured and why."""

    id: str
    value: float | None
    unit: Unit
    status: Literal["measured", "not_measured"] = "measured"
    why: str = ""


@dataclass(frozen=True, slots=True)
class Saving:
    """Time per step that a fix gives back, in µs on the scale of `step_time_us` (un-profiled where captured).

    width_us: by how much what this run leaves unknown makes the range wider, µs: `steps` (they do not repeat exactly),
    `profiler` (which of the ops it slowed), `instead` (what the ops that come instead take). The rest of the width is
    that of the change itself, and `how` says what it is.
    """

    low_us: float
    high_us: float
    basis: Basis
    how: str
    width_us: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.low_us <= self.high_us:
            raise ValueError(f"a saving needs 0 <= low_us <= high_us, got {self.low_us} and {self.high_us}")

    def is_bound(self, step_us: float | None) -> bool:
        """Whether it only says what a fix saves at most: the low end is less than half a per cent of the step."""
        return self.low_us <= 0 or self.low_us < NOTHING_SHARE * (step_us or 0.0)

    def wider(self, low_us: float, high_us: float, why: str, by_us: float) -> Saving:
        """The saving with these ends, whose width is by so many µs due to `why`."""
        known = self.width_us | {why: self.width_us.get(why, 0.0) + by_us} if by_us > 0 else self.width_us
        return replace(self, low_us=low_us, high_us=high_us, width_us=known)


@dataclass(frozen=True, slots=True)
class Source:
    """A place in the user's code. `function` precision: the line is where the function starts, not the call."""

    file: str
    line: int
    function: str = ""
    precision: Literal["call", "function"] = "call"


@dataclass(frozen=True, slots=True)
class Treatment:
    """A change that `advisor try` makes in the script's process, without an edit.

    name       a key of `advisor.capture.inside.treatments.apply.TREATMENTS`, or `environment`
    arguments  plain data; of `environment`: variables, None unsets one
    """

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fix:
    """What to change: lines to copy, and what the change risks.

    exact: same numbers; numerics: results differ by rounding; semantics: the training itself changes.
    treatment: the same change without an edit, where there is one
    edit: where there is none, the change as `advisor.fixing.edits` knows it, so that it can be written all the same
    """

    title: str
    risk: Risk
    before: str = ""
    after: str = ""
    treatment: Treatment | None = None
    edit: Treatment | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to change, as seen in this run.

    A rule sets everything but `severity` (the engine derives it from the step), `measured_us` and `ranks`.

    message      one sentence: what was seen here, with numbers
    saving       None where no honest number can be computed
    where        the user's lines, most expensive first
    facts        the evidence, name -> value; names carry units (`idle_us`, `h2d_bytes`)
    recoverable  False when the cause is outside the user's reach (shown, never counted as a saving)
    claims       breakdown ids whose time this fix would shrink; bounds the saving and the joint saving
    at_most      the highest severity allowed, when a fact that could excuse the code is unknown
    measured_us  idle time or wait of the device that was measured, µs per step on the scale of step_time_us, or time
                 between steps: what the diagnosis rests on, whatever the fix gives back; None where the finding is of
                 another kind
    run_us       where what it saves lies between training steps, or in steps long after the profiled ones, and makes
                 none of these shorter: the time of the run for each training step, of which the saving is a part; None
                 where it is a part of the step
    """

    message: str
    saving: Saving | None = None
    where: tuple[Source, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    fix: Fix | None = None
    recoverable: bool = True
    claims: tuple[str, ...] = ()
    at_most: Severity = "high"
    severity: Severity = "low"
    measured_us: float | None = None
    run_us: float | None = None
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one rule: found, clear, skipped (`reason` says what to do) or error (one line)."""

    rule: str
    status: Status
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    title: str = ""
    confirmed: bool = True
    page: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """One statement about how far the input can be trusted."""

    id: str
    status: Literal["ok", "note", "warning", "error"]
    message: str


@dataclass(frozen=True, slots=True)
class Times:
    """Distribution of step times in µs; None where not measured."""

    mean: float | None = None
    median: float | None = None
    p10: float | None = None
    p90: float | None = None
    n: int = 0


@dataclass(frozen=True, slots=True)
class StepsSummary:
    """How many steps were seen, how they were told apart, and how long they took.

    dilation is profiled median / un-profiled median: what the profiler itself costs.
    repeats is the relative standard deviation of the medians of blocks of five un-profiled steps, at most 0.03: by that
    share of the step the range of every saving is wider than what was computed. None where not captured.
    series_us holds the un-profiled step times in order (at most 500), else the profiled ones.
    host_us is the mean time in which the host issues a profiled step, device_us that in which the device completes one
    (the mean distance between the ends of the last work that consecutive steps launched); None where not known.
    startup_us is what was left out because it is start-up: startup_count leading steps, and calls before them. Where no
    step without start-up was recorded steady is False, and no figure describes the training.
    """

    count: int = 0
    source: StepSource = "window"
    eval_count: int = 0
    profiled_us: Times = Times()
    unprofiled_us: Times = Times()
    dilation: float | None = None
    repeats: float | None = None
    host_us: float | None = None
    device_us: float | None = None
    startup_us: float = 0.0
    startup_count: int = 0
    steady: bool = True
    series_us: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class BreakdownItem:
    """A part of the step; shares of one breakdown sum to 1, `us` is per profiled step."""

    id: str
    us: float
    share: float


@dataclass(frozen=True, slots=True)
class Joint:
    """All accepted fixes together; never the sum of the single savings."""

    low_us: float
    high_us: float
    step_us_after: float
    basis: Basis = "modelled"


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What another accelerator would do for the same step, on the scale of step_time_us; None where it is not known.

    low_us, high_us   the range of the step;  host_us: what would be left of it if the device took no time at all
    known_share       kernel time whose work is known and scaled by the roofline, as a share of all kernel time
    message           the same in a sentence, or why it cannot be said
    """

    device: str
    message: str
    low_us: float | None = None
    high_us: float | None = None
    known_share: float | None = None
    host_us: float | None = None


@dataclass(frozen=True, slots=True)
class AtRanks:
    """What a step would take on so many ranks, on the scale of step_time_us; None where it is not known.

    low_us, high_us   the range of the step; high_us None: only that it takes no less than low_us is known
    low_efficiency, high_efficiency   the step without waiting for communication, as a share of that step
    """

    ranks: int
    low_us: float
    high_us: float | None
    low_efficiency: float | None
    high_efficiency: float


@dataclass(frozen=True, slots=True)
class FittedCollective:
    """What one kind of collective takes on the measured ranks: latency, and bandwidth in bytes of the whole message.

    collectives  that were looked at;  bytes_per_second: None where no two sizes tell it from the latency
    """

    kind: str
    collectives: int
    low_latency_us: float
    high_latency_us: float
    bytes_per_second: float | None


@dataclass(frozen=True, slots=True)
class WhatIfRanks:
    """The same training on other numbers of data-parallel or sharded ranks, each with its batch as it is.

    message      one sentence: what was found, or why nothing can be computed; then `rows` is empty
    ranks        that were measured, step_us and efficiency theirs;  alone_us: their step without waiting for
                 communication
    rows         one for each number that was asked about;  fitted: what collectives cost
    assumptions  sentences that the ranges rest on
    """

    message: str
    ranks: int = 0
    step_us: float | None = None
    alone_us: float | None = None
    efficiency: float | None = None
    rows: tuple[AtRanks, ...] = ()
    fitted: tuple[FittedCollective, ...] = ()
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplayCheck:
    """Error of the unedited replay against the measured step."""

    error_share: float
    low_confidence: bool


@dataclass(frozen=True, slots=True)
class Segment:
    """A drawn piece of a timeline lane; times in µs from the start of the drawn step."""

    start_us: float
    dur_us: float
    kind: str
    label: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A thread or a stream of the drawn step."""

    name: str
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """One real step, that of median duration, merged to a drawable number of segments."""

    step: str
    dur_us: float
    lanes: tuple[Lane, ...]


@dataclass(frozen=True, slots=True)
class OpRow:
    """A kernel or op name with its total per step."""

    name: str
    kind: str
    us: float
    calls: float
    share: float


@dataclass(frozen=True, slots=True)
class ModuleCost:
    """What a module of the model costs per step, the modules inside it included; own: outside of them.

    Times are of profiled steps, as the breakdown's; shares are of the profiled step. None is not known: the module's
    forward was not seen (`calls` is 0), nothing links work to it, or the trace has no shapes.

    path        as in the model (`encoder.layers.0.self_attn`); in `folded` rows `encoder.layers.0-11`
    members     how many modules of one kind this row sums up
    depth       in `folded` rows: how many of the rows above this one lies in
    parameters  of the module and those inside it; bytes likewise
    flops       of its forward per step: matrix products, convolutions and attention
    forward_us  of the loop's thread;  backward_us: of the autograd nodes that its forward ops made
    device_us   of the device work that its forward and its backward started; None without a device
    low_us, high_us  forward and backward without the profiler
    """

    path: str
    kind: str
    members: int = 1
    depth: int = 0
    calls: float = 0.0
    parameters: int | None = None
    parameter_bytes: int | None = None
    flops: float | None = None
    forward_us: float | None = None
    forward_own_us: float | None = None
    backward_us: float | None = None
    backward_own_us: float | None = None
    device_us: float | None = None
    device_own_us: float | None = None
    share: float | None = None
    own_share: float | None = None
    device_share: float | None = None
    low_us: float | None = None
    high_us: float | None = None


@dataclass(frozen=True, slots=True)
class ModuleTable:
    """Cost by module, of one rank.

    steps     profiled steps that ran the ops of the step whose modules were recorded; all figures are of these
    why       why nothing is known, where no module has a time
    rows      every module, in the model's order (of very many the costliest);  left_out: how many more there are
    folded    the costliest as a tree in which equal neighbours are one row
    """

    rank: int = 0
    steps: int = 0
    why: str = ""
    rows: tuple[ModuleCost, ...] = ()
    left_out: int = 0
    folded: tuple[ModuleCost, ...] = ()


@dataclass(frozen=True, slots=True)
class RunLine:
    """A line of the user's in which a part of the run passed, in µs of the run.

    inner: where below it most of that; guard: the `if` that lets it happen every so many times (`step % 100 == 0`).
    """

    source: Source
    us: float
    inner: Source | None = None
    guard: Source | None = None


@dataclass(frozen=True, slots=True)
class RunPart:
    """A part of the watched run, µs of the run. error_us: the standard error of `us`; times: how often, None: unknown.

    lines: those in which most of it passed, the costliest first.
    """

    id: str
    us: float
    share: float
    error_us: float = 0.0
    times: float | None = None
    lines: tuple[RunLine, ...] = ()


@dataclass(frozen=True, slots=True)
class RunAccount:
    """Where the time of the run went, as far as it was watched, on one rank.

    us      of the run: from the start of the process to the last record, without `ours_us`; the parts sum to it
    steps   training steps in it
    ours_us of the run under the profiler of capture and in its work between steps
    sampled how many samples of the loop's stack tell the parts of one stretch from each other
    """

    us: float
    steps: int
    ours_us: float
    parts: tuple[RunPart, ...]
    rank: int = 0
    sampled: int = 0


@dataclass(frozen=True, slots=True)
class Counter:
    """A count of each whole step of the profiled window, in order: what the gate compares exactly.

    id: a metric id (`cpu_ops`) for a total, or a part of one after a colon (`op:aten::mul`).
    """

    id: str
    unit: Unit
    per_step: tuple[float, ...]
    where: Source | None = None


@dataclass(frozen=True, slots=True)
class RankSummary:
    """One trace of the job."""

    rank: int
    file: str
    metrics: dict[str, Metric]
    steps: StepsSummary
    breakdown: tuple[BreakdownItem, ...]


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What was run, where and with what; secrets masked, no host or user names."""

    command: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    reference_rank: int = 0
    world_size: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()


TryVerdict = Literal[
    "faster", "not proven", "slower", "changes training", "no effect", "out of memory", "failed", "not tried"
]
Numbers = Literal["equal", "within seeds", "outside seeds", "not compared"]


# Whether what the advice names did change: `unknown` where it names nothing that is counted.
Mechanism = Literal["moved", "not moved", "unknown"]


@dataclass(frozen=True, slots=True)
class Speed:
    """Step times of one side, medians over its pairs. samples_per_s: None where no loader's batches were seen."""

    median_us: float
    mean_us: float
    p90_us: float
    samples_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """How often something happens in a step, or its time (`unit` "us"), without and with the change."""

    name: str
    base: float
    changed: float
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """One change that was measured against the script as it is, or why it was not.

    gain, low, high      share of the base's step that the change saves (0.2: 20 % less time), with the bounds of its
                         95 % interval; None where not measured
    promised_low, _high  the same share as the finding promised it; None where it promised nothing
    numbers              losses against the base's with the same seeds: bitwise equal; differing by no more than other
                         seeds make them differ; differing by more; not compared (`why` says why)
    memory_bytes, base_memory_bytes  peak of the accelerator's allocator, or memory of the processes on a host
    work                 samples of a changed step for each of the script's own; where not 1, gain is of a sample
    mechanism, counters  whether the counter moved that the advice names, and all that were counted and differ
    first_startup_us     what the start took longer, warm-up included, in the first pair, when nothing was cached;
    startup_us           median of the later pairs
    rules                whose findings ask for the change;  treatments: what was applied, several where tried together
    """

    title: str
    verdict: TryVerdict
    why: str = ""
    rules: tuple[str, ...] = ()
    risk: Risk = "exact"
    treatments: tuple[Treatment, ...] = ()
    promised_low: float | None = None
    promised_high: float | None = None
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    base: Speed | None = None
    changed: Speed | None = None
    numbers: Numbers = "not compared"
    memory_bytes: int | None = None
    base_memory_bytes: int | None = None
    reached: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    work: float = 1.0
    mechanism: Mechanism = "unknown"
    counters: tuple[Counted, ...] = ()
    first_startup_us: float | None = None
    startup_us: float | None = None

    @property
    def pays_after(self) -> int | None:
        """Steps after which the longer first start is won back; None where it was not longer, or nothing is won."""
        if not (self.first_startup_us and self.base and self.gain) or self.gain <= 0 or self.first_startup_us <= 0:
            return None
        # Of a step that does more work, the share of each sample's time.
        return math.ceil(self.first_startup_us / (self.gain * self.base.median_us * self.work))


@dataclass(frozen=True, slots=True)
class Tried:
    """What `advisor try` measured on this machine with this script.

    trials         each change alone, in the order of their promises;  together: the proven ones at once, those that
                   contribute nothing left out
    contributions  what the set with all proven changes loses without each of them
    noise          of a pair of base against base, as a share;  repeats: equal seeds give bitwise equal losses
    error          at most this is the chance that any change is called faster that is not
    """

    trials: tuple[Trial, ...] = ()
    together: Trial | None = None
    contributions: tuple[Trial, ...] = ()
    noise: float | None = None
    repeats: bool | None = None
    error: float = 0.05
    budget_s: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Moved:
    """What takes another time in a later window than in the first, µs and calls per step without the profiler.

    kind  part (of the step, by its breakdown id), line (of the user's), op (a kernel where there is a device)
    """

    kind: str
    name: str
    before_us: float
    before_calls: float
    after_us: float
    after_calls: float


@dataclass(frozen=True, slots=True)
class ProfiledWindow:
    """One of several windows of a run.

    at         training iterations before it
    why        first | every (so many steps) | asked (for) | slower (steps became slower)
    steps      profiled ones in it
    step_us    a step without the profiler, just before it: their median; spread_us: their 10 % and 90 % points
    moved      against the first window, the largest difference of each kind first
    """

    at: int
    why: str
    steps: int
    step_us: float
    spread_us: tuple[float | None, float | None] = (None, None)
    moved: tuple[Moved, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryHolder:
    """Bytes at the peak of one kind, module or line. note: "others" or "not attributed" where it is no single one."""

    name: str
    bytes: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """Live bytes at an instant, µs from the start of the window.

    bytes: of weights, optimizer, gradients, activations, temporaries, input and unknown ones, in this order
    """

    us: float
    bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemoryRelief:
    """A change that frees memory: of the peak at most `bytes`, before another moment becomes the peak.

    forward_us: what a second forward of the module takes per step, profiled; None where not known or not needed
    """

    title: str
    bytes: int
    risk: Risk
    forward_us: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """What tensors hold at the peak of the profiled window; `kinds`, `modules` and `lines` each sum to peak_bytes.

    at_us   from the start of the window
    """

    rank: int
    on_device: bool
    peak_bytes: int
    at_us: float
    kinds: tuple[MemoryHolder, ...] = ()
    modules: tuple[MemoryHolder, ...] = ()
    lines: tuple[MemoryHolder, ...] = ()
    timeline: tuple[MemoryPoint, ...] = ()
    reliefs: tuple[MemoryRelief, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparedRank:
    """A rank beside the others of its job, µs per profiled step.

    node        number of its node, counted by lowest rank; None where not known
    mesh        kind of parallelism (a key of `parallelism.KINDS`) -> place in it; what process groups describe
    own_us      the step without communication that nothing hides
    waits_us    what it only waits for ranks that join a collective or send a message later; None where not known
    waits_for   the rank that it waits for the longest, waits_for_us so long; None where it waits for none
    awaited_us  what the rank that waits longest for this one waits for it
    last_share  share of the matched collectives of its groups that it joins last
    more        the part of the step, communication left out, in which it is furthest above the median rank: more_us;
                empty where it is above it in none
    """

    rank: int
    own_us: float
    node: int | None = None
    mesh: dict[str, int] = field(default_factory=dict)
    waits_us: float | None = None
    waits_for: int | None = None
    waits_for_us: float = 0.0
    awaited_us: float | None = None
    last_share: float | None = None
    more: str = ""
    more_us: float = 0.0


@dataclass(frozen=True, slots=True)
class RankGroup:
    """The ranks at one place of one dimension of a job, µs per profiled step.

    kind        "node", or a kind of parallelism
    own_us      median of its ranks' `own_us`;  more_us: against the median of the other groups of this kind
    waits_us    median of its ranks' `waits_us`; None where not known
    more        the part in which most of more_us lies; empty where it takes no more than the others
    stands_out  more_us is a finding's share of the step, and each of its ranks is half as far above
                the median rank of the others
    """

    kind: str
    index: int
    ranks: tuple[int, ...]
    own_us: float
    more_us: float
    waits_us: float | None = None
    more: str = ""
    stands_out: bool = False


@dataclass(frozen=True, slots=True)
class ComparedRanks:
    """The ranks of a job side by side, over the steps that all of them have.

    step_us       a profiled step of the rank that stands for the job
    groups        by kind and place, where there are at least two of a kind
    uncertain_us  how far the clocks of ranks may still be apart; None where no collectives align them
    why           why it is not known who waits for whom; empty where it is
    """

    step_us: float
    steps: int
    ranks: tuple[ComparedRank, ...]
    groups: tuple[RankGroup, ...] = ()
    uncertain_us: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class DetailedRank:
    """A rank in full beside the one that stands for the job: the costliest rows, and of modules the folded tree.

    why   "others wait for it", "most own work", "least own work", "asked for", or kind and place of a `RankGroup`
          ("stages:1"); empty in a job so small that every rank is shown
    """

    rank: int
    why: tuple[str, ...] = ()
    timeline: Timeline | None = None
    kernels: tuple[OpRow, ...] = ()
    ops: tuple[OpRow, ...] = ()
    lines: tuple[OpRow, ...] = ()
    modules: ModuleTable | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that any output shows. `advisor.report.report_file` reads and writes it as report.json."""

    run: RunInfo
    health: tuple[Health, ...]
    steps: StepsSummary
    metrics: dict[str, Metric]
    breakdown: tuple[BreakdownItem, ...]
    outcomes: tuple[Outcome, ...]
    joint: Joint | None = None
    replay: ReplayCheck | None = None
    ranks: tuple[RankSummary, ...] = ()
    timeline: Timeline | None = None
    kernels: tuple[OpRow, ...] = ()
    ops: tuple[OpRow, ...] = ()
    counters: tuple[Counter, ...] = ()
    lines: tuple[OpRow, ...] = ()  # by the user's line (`train.py:88 train`), on the loop's thread
    what_if: tuple[WhatIf, ...] = ()  # other accelerators that were asked about
    modules: ModuleTable | None = None  # cost by module; None where the input never told of modules
    account: RunAccount | None = None  # of the whole run; None where `advisor run` did not watch it
    tried: Tried | None = None  # what `advisor try` measured
    windows: tuple[ProfiledWindow, ...] = ()  # in their order, where there are several; the figures are of the first
    memory: MemoryPeak | None = None  # what holds memory at the peak; None where memory events were not recorded
    compared: ComparedRanks | None = None  # several ranks; None where fewer than two can be compared
    details: tuple[DetailedRank, ...] = ()  # ranks in full besides the one that stands for the job
    what_if_ranks: WhatIfRanks | None = None  # other numbers of ranks, where they were asked about
    schema: str = SCHEMA
    version: int = VERSION

    @property
    def step_us(self) -> float | None:
        """What a step takes (`step_time_us`), which savings are parts of; None where it was not measured."""
        metric = self.metrics.get("step_time_us")
        return metric.value if metric and metric.status == "measured" else None

    def findings(self) -> list[tuple[Outcome, Finding]]:
        """All findings of confirmed and unconfirmed rules, as `finding_order` has them."""
        pairs = [(outcome, finding) for outcome in self.outcomes for finding in outcome.findings]
        return sorted(pairs, key=lambda pair: finding_order(pair[0].rule, pair[1], self.step_us))


def finding_order(rule: str, finding: Finding, step_us: float | None = None) -> tuple[int, float, float, str, str]:
    """Sort key of findings: savings that are certain, then bounds ("up to"), then those without a number.

    Within each the largest high end first, then the largest low end, then the rule id.
    """
    saving = finding.saving
    if saving is None:
        return (2, 0.0, 0.0, rule, finding.message)
    return (int(saving.is_bound(step_us)), -saving.high_us, -saving.low_us, rule, finding.message)

"""Times of the whole run."""

from __future__ import annotations

import msgspec

from advisor.capture.record.code_place import CodePlace


class RunSamples(msgspec.Struct, frozen=True):
    """Stack samples of the loop's thread at one line, in segments of one kind.

    kind                  start | step | long | between | end, as in `RunTimes`
    file, line, function  the user's line at which the stack leaves the path to the training step: in the loop, or in
                          what a framework calls; empty if no user code was on the stack
    block                 first line of the outermost loop (or `with`) around it that does not contain the training
                          step, or the line itself; 0 in a function that is not on the path to the training step
    guard                 line of the innermost `if` with a remainder in its condition (`step % 100`) around it that
                          does not contain the training step; 0: there is none
    outside               whether it lies outside of the innermost loop around the training step, which may be in a
                          function that this one calls
    inner                 file, line and function of the user's innermost line, if it is a different one
    loop                  file, line and function of the outermost loop in the functions called from it
    inner_loop            the same of the innermost of these loops
    turn                  the same of the line that runs in the outermost of these loops, in the function that holds it
    call                  file, line and function of the user's line that calls the outermost running module
    package               package whose code the line runs: `matplotlib`, `json` …; empty for user code and for C
    marks                 forward | save | fetch | iterator | workers | evaluate | compile | import | outputs: known
                          functions on the stack (iterator: a DataLoader creates one; workers: its workers start or
                          stop; outputs: a framework keeps those of an evaluation for its metrics; compress: gzip and
                          its like write);
                          eval_mode: a module in evaluation mode; also_trained: that was in training mode before;
                          untrained: a batch that no backward pass followed; epoch_end: after the loader of the training
                          was exhausted; first_batch: the first batch of new workers
    hits, stretches       number of samples, and of segments that contain them; no samples: known from the loader
    first, last           training iterations before the end of the first and of the last such segment
    """

    kind: str
    file: str = ""
    line: int = 0
    function: str = ""
    block: int = 0
    guard: int = 0
    outside: bool = False
    inner: tuple[str, int, str] = ("", 0, "")
    loop: tuple[str, int, str] = ("", 0, "")
    inner_loop: tuple[str, int, str] = ("", 0, "")
    turn: tuple[str, int, str] = ("", 0, "")
    call: tuple[str, int, str] = ("", 0, "")
    package: str = ""
    marks: list[str] = []
    hits: int = 0
    stretches: int = 0
    first: int = 0
    last: int = 0


class ForwardPass(msgspec.Struct, frozen=True):
    """Stack samples in which one module was the outermost that ran, by the line that calls it and by its mode.

    place      the user's innermost line that calls it; first: where the function around that begins, 0: none is
    module     a number for it, without what wraps it
    evaluates  in evaluation mode
    hits       samples; inside: in which a layer within was given a tensor; recorded: that wanted a gradient, though
               nothing that the module was given did
    frames     on the stack, the mean;  files: that these are of
    sizes      of the first tensor that the module was given: up to eight different ones, the most frequent first
    loop       of an evaluation, the innermost loop around the call; None where unknown, or where it trains as well
    apart      by the text, no iteration of that loop needs what the call returned in an earlier one
    """

    place: CodePlace
    first: int = 0
    module: int = 0
    evaluates: bool = False
    hits: int = 0
    inside: int = 0
    recorded: int = 0
    frames: float = 0.0
    files: float = 0.0
    sizes: list[list[int]] = []
    loop: CodePlace | None = None
    apart: bool | None = None


class TrendLine(msgspec.Struct, frozen=True):
    """The user's innermost line on the stack, as sampled in training steps.

    loop_file, loop_line  the line of the training loop (or what a framework calls) that led to it
    hits                  samples in each segment
    """

    file: str
    line: int
    function: str = ""
    loop_file: str = ""
    loop_line: int = 0
    hits: list[int] = []


class StepTrend(msgspec.Struct, frozen=True):
    """Training steps of the whole run without the profiler, in segments of equally many steps; one entry per segment.

    first           training iterations before it
    steps           training steps in it
    usual_us        duration of an ordinary step: the median of up to 16 of them, drawn at random
    spent_us        total time of its steps
    queued_us       of that, time for which the loop's thread waited for a core; None if the system does not report it
    resident_bytes  of the process at its end
    samples         stack samples in its training steps
    lines           lines of these samples
    """

    first: list[int] = []
    steps: list[int] = []
    usual_us: list[float] = []
    spent_us: list[float] = []
    queued_us: list[float | None] = []
    resident_bytes: list[int | None] = []
    samples: list[int] = []
    lines: list[TrendLine] = []


class RunTimes(msgspec.Struct, frozen=True):
    """Times of the whole run, in segments between the boundaries of training iterations, with stack samples.

    Kinds of segments: start (to the end of the first training step), step (training steps of ordinary length), long
    (more than 1.5 times that), between (without a training step), end (after the last boundary).
    """

    before_us: float | None = None  # age of the process when timing began, after torch was imported
    ours_us: float = 0.0  # under capture's profiler and in its own work at boundaries; not part of the other times
    spent_us: dict[str, float] = {}  # time by kind
    # Of that, time for which the loop's thread waited for a core; ordinary steps have what others cannot have had.
    queued_us: dict[str, float] = {}
    count: dict[str, int] = {}  # segments by kind
    usual_us: float = 0.0  # what the long steps would have taken at ordinary length
    samples: list[RunSamples] = []  # the lines with most of them
    sampled: int = 0
    sampling_us: float = 0.0  # CPU time of the sampling thread
    epochs: int = 0  # times that the loader of the training was exhausted
    moved_at: list[int] = []  # training iterations before each move to another training loop
    restarts: int = 0  # iterators that started workers after the first training step
    workers_us: float = 0.0  # what these take from being made to being asked for a batch;  and until their first batch
    first_batches_us: float = 0.0
    trend: StepTrend = StepTrend()
    passes: list[ForwardPass] = []  # those with most samples first

"""The whole run by the clock."""

from __future__ import annotations

import msgspec


class RunSamples(msgspec.Struct, frozen=True):
    """Samples of the loop's thread in stretches of one kind, that stood at one place.

    kind                  start | step | long | between | end, as in `RunTimes`
    file, line, function  the user's line where the stack leaves the way to the training step: in the loop, or in what
                          a framework calls; empty where no code of the user's was on the stack
    block                 first line of the largest loop (or `with`) around it that the training step is not in, or its
                          line; 0 in a function that the way to the training step does not lead through
    guard                 line of the innermost `if` with a remainder in its test (`step % 100`) around it that the
                          training step is not in; 0: there is none
    inner                 file, line and function of the user's innermost line, where it is another
    loop                  file, line and function of the outermost loop below it, in what that line calls
    package               whose code that line runs: `matplotlib`, `json` …; empty for its own, and what is written in C
    marks                 forward | save | fetch | iterator | workers | evaluate | compile | import: known work on the
                          stack (iterator: one of a DataLoader is made; workers: its workers start or stop);
                          eval_mode: of a module in evaluation mode; also_trained: which was in training mode before;
                          untrained: of a batch that no backward pass
                          followed; epoch_end: after a loader that was trained on had no batch left; first_batch: it is
                          the first of new workers
    hits, stretches       how many samples, in how many stretches; no sample: known from the loader that was asked
                          there; first, last: iterations before the end of such a stretch
    """

    kind: str
    file: str = ""
    line: int = 0
    function: str = ""
    block: int = 0
    guard: int = 0
    inner: tuple[str, int, str] = ("", 0, "")
    loop: tuple[str, int, str] = ("", 0, "")
    package: str = ""
    marks: list[str] = []
    hits: int = 0
    stretches: int = 0
    first: int = 0
    last: int = 0


class TrendLine(msgspec.Struct, frozen=True):
    """A line of the user's that was sampled in training steps, the innermost on the stack.

    loop_file, loop_line  the line of the training loop (or what a framework calls) that it was reached from
    hits                  samples in each stretch
    """

    file: str
    line: int
    function: str = ""
    loop_file: str = ""
    loop_line: int = 0
    hits: list[int] = []


class StepTrend(msgspec.Struct, frozen=True):
    """Training steps over the whole run without the profiler, in stretches of equally many; one entry for each.

    first           training iterations before it
    steps           training steps in it
    usual_us        what an ordinary one took: the median of up to 16 of them, drawn at random
    spent_us        time in all of them
    queued_us       of it, in which the loop's thread was ready and had no core; None where the system does not tell
    resident_bytes  that the process held at its end
    samples         of the stack, in its training steps
    lines           where those stood
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
    """The whole run by the clock, in stretches between the boundaries of training iterations, and sampled a few times
    a second.

    Kinds of stretches: start (to the end of the first training step), step (training steps of ordinary length), long
    (those of more than 1.5 times that), between (without a training step), end (after the last boundary).
    """

    before_us: float | None = None  # age of the process when the watch began: torch had just been imported
    ours_us: float = 0.0  # under the profiler of capture, and in its work at boundaries: in no other sum
    spent_us: dict[str, float] = {}  # time by kind
    count: dict[str, int] = {}  # stretches by kind
    usual_us: float = 0.0  # what the long steps would have taken had they been ordinary
    samples: list[RunSamples] = []  # the places with most of them
    samples_left_out: int = 0
    sampled: int = 0
    sampling_us: float = 0.0  # CPU time of the thread that samples
    evaluations: int = 0  # iterators that gave batches which no backward pass followed
    epochs: int = 0  # times that an iterator which was trained on had no batch left
    restarts: int = 0  # iterators that started workers after the first training step
    trend: StepTrend = StepTrend()

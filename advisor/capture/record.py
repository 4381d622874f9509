"""What capture knows besides the trace: the structs of run.json (schema torch-advisor/run, version 1).

Standard library and msgspec only. `None` and an absent key mean *unknown*, never "off". The child process writes the
same keys as plain JSON, without importing this module (it must not import msgspec into the user's process).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from advisor.errors import InputError
from advisor.places.place import Place

SCHEMA = "torch-advisor/run"
VERSION = 1


class TraceFile(msgspec.Struct, frozen=True):
    """A trace that capture wrote. role: `profile` gives every number, `lines` only lines."""

    path: str
    role: str
    steps: dict[str, int] = {}  # "ProfilerStep#3" -> iteration of the script's loop, from 0
    partial: bool = False


class StepTimes(msgspec.Struct, frozen=True):
    """Step times seen by the hooks, µs, in order."""

    source: str = "window"  # user | loader | optimizer | backward | window
    count: int = 0  # training iterations seen in all
    eval_count: int = 0
    optimizer_steps: int = 0
    unprofiled_us: list[float] = []
    timed_before: int | None = None  # so many of them came before the window; the process may be another after it
    unprofiled_mean_us: float | None = None  # set alone where only the mean could be measured
    profiled_us: list[float] = []
    clock: str = "host"  # host | device | mean
    # Time of the loop's thread in the fetches (`fetch`), backward passes, optimizer steps (`optimizer`, zero_grad not
    # included) and all the rest (forward pass, Python, zero_grad) of steps, µs, one number a step; the four sum to it.
    # Seen by the same listeners in both; only where no device is in use. Steps in which a part did not end are left
    # out, so the lists may be shorter than those above.
    unprofiled_parts_us: dict[str, list[float]] = {}
    profiled_parts_us: dict[str, list[float]] = {}


class CodePlace(msgspec.Struct, frozen=True):
    """A line of the script's text."""

    file: str
    line: int
    function: str = ""


class Loader(msgspec.Struct, frozen=True):
    """A DataLoader that the training loop iterated."""

    batch_size: int | None = None
    num_workers: int | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    prefetch_factor: int | None = None
    context: str | None = None  # fork | spawn | forkserver
    drop_last: bool | None = None
    shuffle: bool | None = None
    dataset: str | None = None  # class name
    dataset_size: int | None = None
    collate: str | None = None
    iterable: bool | None = None
    sample_us: float | None = None  # median time to fetch one sample, where it was reached
    collate_us: float | None = None  # median time to collate a batch
    sample_why: str = ""  # why sample_us is not known
    worker_us: list[float] = []  # median time to make a batch, of each worker that was reached
    random_samples: bool | None = None  # random numbers were drawn while samples were read, by any generator
    sampler: str | None = None  # class of what draws the indices
    sampler_us: float | None = None  # mean time to draw those of a batch in the loop, un-profiled, the longest left out
    sampler_median_us: float | None = None
    sample_from: tuple[str, int, str] | None = None  # file, first line and name of the script's function that reads one
    collate_from: tuple[str, int, str] | None = None  # and of the one that puts a batch together
    batches_per_iterator: float | None = None  # drawn from each that was made in un-profiled steps; None: none was
    sampler_file: str = ""  # of the sampler's code, where it is none of torch's
    sampler_lines: list[list[int]] = []  # first and last line of each of its functions
    sampler_weighted: list[int] = []  # lines of it that name a function which draws by weight
    iterators: int | None = None  # of it that gave batches to train on: epochs, where each goes through all samples
    file: str = ""  # where it was made: the user's innermost line
    line: int = 0
    function: str = ""
    batch_size_at: CodePlace | None = None  # where the number stands in the script's text


class Optimizer(msgspec.Struct, frozen=True):
    """An optimizer that stepped."""

    name: str
    foreach: bool | None = None
    fused: bool | None = None
    capturable: bool | None = None
    tensors: int | None = None  # parameters with a gradient
    device: str = ""
    dtypes: list[str] = []  # of the parameters
    state_dtypes: list[str] = []  # of the state, single numbers left out
    state_bytes: int | None = None  # of the state on this rank
    file: str = ""  # where it was made: the user's innermost line
    line: int = 0
    function: str = ""


class Settings(msgspec.Struct, frozen=True):
    """Switches that no trace holds, as they stood in the profiled window."""

    matmul_precision: str | None = None  # torch.get_float32_matmul_precision(): highest | high | medium
    matmul_precision_set: bool | None = None  # the script itself chose it, if only by choosing the default
    tf32_matmul: bool | None = None
    tf32_cudnn: bool | None = None
    cudnn_enabled: bool | None = None
    cudnn_benchmark: bool | None = None
    cudnn_deterministic: bool | None = None
    deterministic: bool | None = None
    autocast: bool | None = None  # an autocast region was entered in the window
    autocast_dtype: str | None = None
    default_dtype: str | None = None
    anomaly_detection: bool | None = None
    grad_scaler: bool | None = None
    threads: int | None = None  # torch.get_num_threads() of the rank's process
    interop_threads: int | None = None
    numpy_threads: int | None = None  # of the OpenBLAS that NumPy calls
    cores: int | None = None  # cores this process may use (affinity and cgroup quota)
    cpu_bf16: bool | None = None  # this CPU multiplies bf16 in hardware (amx_bf16, avx512_bf16, Arm bf16)
    model_device: str | None = None  # device type of the parameters that got gradients: cpu | cuda | …
    accelerator_available: bool | None = None  # torch sees a usable accelerator
    accelerator_name: str | None = None
    compiled: bool | None = None
    ddp: dict[str, Any] | None = None  # arguments of DistributedDataParallel
    fsdp: dict[str, Any] | None = None  # arguments of FullyShardedDataParallel or fully_shard; units: how many
    framework: str | None = None  # that turns the loop: lightning | transformers | accelerate; None: the script itself
    # The user's innermost line in the last call that set: matmul_precision | deterministic | default_dtype |
    # anomaly_detection | ddp (its constructor).  By the text of the script's files, where one line alone says it:
    # threads (`set_num_threads`) | double (`.double()`, else float64) | checkpointing | cudnn_benchmark |
    # cudnn_deterministic | variables of the environment, by their names.
    set_at: dict[str, CodePlace] = {}

    @classmethod
    def compute(cls, record: RankRecord) -> Settings:
        """The settings of the analysed rank, for whoever asks for them by type. Missing on a bare trace."""
        return record.settings


class ThreadTime(msgspec.Struct, frozen=True):
    """A Python thread beside the loop's, over the un-profiled timing phase. No file: it runs a library's function."""

    name: str = ""
    cpu_us: float = 0.0
    file: str = ""
    line: int = 0  # the first line of the function
    function: str = ""


class MemoryReading(msgspec.Struct, frozen=True):
    """Memory at one boundary. phase: timing | timed (the two ends of the un-profiled phase) | after (the window)."""

    phase: str = ""
    step: int = 0  # training iterations so far
    resident_bytes: int | None = None  # of the process alone: no files, nothing shared with its workers
    allocated_bytes: int | None = None  # on the current CUDA device
    reserved_bytes: int | None = None


class Vitals(msgspec.Struct, frozen=True):
    """How the process fared: threads over the un-profiled timing phase, memory over the run, the start."""

    first_step_us: float | None = None  # age of the process at the first boundary of its steps
    age_us: float | None = None  # age of the process when this was written
    ended: bool = False  # this was written at the end of the script
    timed_steps: int | None = None  # training iterations between the two readings of threads
    timed_us: float | None = None  # time between them
    loop_cpu_us: float | None = None  # CPU time of the loop's thread in it
    loop_queued_us: float | None = None  # time in which that thread was ready and had no core
    process_cpu_us: float | None = None
    windows: int = 1  # that were recorded until one was calm; the calmest is the trace
    window_waited: float | None = None  # share of that one in which the loop's thread was ready and had no core
    threads: list[ThreadTime] | None = None
    memory: list[MemoryReading] = []


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


class KeptGraphs(msgspec.Struct, frozen=True):
    """Losses of earlier steps that were still held with their graphs when the window closed, or before it opened."""

    losses: int = 0
    steps: int = 0  # that they are of
    of_steps: int = 0  # that had been made by then
    held_bytes: float | None = None  # what the graphs of one step hold besides nodes; None where torch does not tell
    summed: bool = False  # in one number that each step adds to, not in a list
    name: str = ""  # of the variable; empty where it was not found
    function: str = ""
    file: str = ""
    line: int = 0


class Mask(msgspec.Struct, frozen=True):
    """A mask of tokens by tokens, one for all sequences and heads, that a module held in the step with lines."""

    tokens: int
    form: str  # seen | hidden | added: it says that each token sees those before it and itself; other: something else


class Lookup(msgspec.Struct, frozen=True):
    """A batch of indices: one that an embedding looked up in the step whose lines were recorded, or a loader's."""

    samples: int
    length: int
    longest: int  # the longest sample without the padding behind or before it; length where there is none


class LossLabels(msgspec.Struct, frozen=True):
    """The labels of a cross entropy in the step whose lines were recorded."""

    labels: int
    ignored: int  # of them those that `ignore_index` leaves out
    classes: int


class SparseProduct(msgspec.Struct, frozen=True):
    """A product of the observed steps whose left matrix is mostly zeros and stays as it is."""

    rows: int
    columns: int
    width: int  # columns of what it is multiplied with
    filled: float  # share of its numbers that are not zero
    sparse_us: float | None = None  # the same product with the matrix in sparse form, on a CPU
    sparse_backward_us: float | None = None  # and with it turned, as the backward pass takes it


class DenseMatrix(msgspec.Struct, frozen=True):
    """A large matrix that the script held through the observed steps, and whose shape a product of them has."""

    held: int  # its place in `Dataflow.held`
    rows: int
    columns: int
    filled: float
    products: list[SparseProduct] = []  # that were timed with its sparse form: on a CPU, where it is mostly zeros


# A digit of `Dataflow.held`: the tensor was there when the observed steps ended; it was neither written nor moved; it
# asked for a gradient then or when an iterator of a loader began later; by such a time it was written, moved, freed or
# an optimizer's.
ALIVE, SAME, ASKS, WRITTEN = 1, 2, 4, 8


class Dataflow(msgspec.Struct, frozen=True):
    """What the live process alone knows of the two steps that were observed after the window.

    file      what torch's execution-trace observer wrote, compressed, beside run.json; `read` makes it a path
    why       why nothing was observed
    held      for each tensor that the script held and that was marked for the observer, in that order, a hexadecimal
              digit: the sum of ALIVE, SAME, ASKS and WRITTEN
    looks     iterators of loaders that began after the observed steps and at which the tensors were looked at
    calm      Python's, NumPy's and the script's own generators of random numbers stood still in the observed steps
    """

    file: str = ""
    why: str = ""
    held: str = ""
    looks: int = 0
    calm: bool = False
    matrices: list[DenseMatrix] = []


class Features(msgspec.Struct, frozen=True):
    """What the observed steps compute of each sample by itself with weights that stay.

    ops         those that do, indices into `JudgedOps.ops`
    samples     in a batch
    kept_bytes  of one sample: what other ops read of their results
    read_bytes  of one sample: what no other op reads of what the loader gave
    layers      how many of the ops are products with weights, convolutions, lookups
    frozen      none of the weights asks for a gradient
    begun       looks afterwards, where none of the weights had been written: as an iterator of a loader began, or where
                no loader feeds the loop, at twice as many steps as the time before
    chosen_of   samples in the tensor of the script's that the batch was chosen of, at rest as well; 0: a loader gave it
    """

    ops: list[int]
    samples: int
    kept_bytes: int
    read_bytes: int
    layers: int
    frozen: bool = False
    begun: int = 0
    chosen_of: int = 0


class JudgedOps(msgspec.Struct, frozen=True):
    """What is concluded from the observed steps (`advisor/analyses/dataflow/judged_steps.py`).

    Earlier versions kept it in run.json, and examples of rules state it there.

    names, ops   the outermost ops of one step on the loop's thread, in order: indices into names
    again        (op, the earlier op that made the same result from the same), indices into ops; a negative one is of
                 the step before, counted from its end
    constant     ops, none of fetches and optimizers, that read nothing but numbers of the script and tensors that it
                 held for many steps and that nothing wrote, in the same form in both steps
    unread       (op that works row by row, the op that takes rows of what came of it, share of the rows it takes):
                 all that reads its result
    casts        (op, which of the casts that autocast made for it, an earlier op, which of its casts made the same)
    waits        for each of ops how far before it those are that wrote what it reads; 0 where not known
    sorted       (sort, how many of its elements from one end on are read, how many it sorts): where not all are read
    """

    names: list[str] = []
    ops: list[int] = []
    again: list[tuple[int, int]] = []
    constant: list[int] = []
    unread: list[tuple[int, int, float]] = []
    waits: list[list[int]] = []
    sorted: list[tuple[int, int, int]] = []
    casts: list[tuple[int, int, int, int]] = []
    features: Features | None = None  # None: there are none, or nobody looked
    why: str = ""  # why nothing is known
    file: str = ""  # of an earlier version, whose content is not read any longer


class Measured(msgspec.Struct, frozen=True):
    """One calibration of the machine, by `advisor.calibration` when the script had ended.

    torch, threads  version, and torch.get_num_threads() while it measured
    device          name of the accelerator that it measured, too; empty without one
    quantities      name -> (low, median, high, number of samples); low and high are the 10 % and 90 % points
    failed          name -> why a quantity was not measured
    waited          share of its time in which it was ready and had no core; None where the system does not tell
    seconds         that it took, without importing torch
    """

    torch: str = ""
    threads: int = 1
    device: str = ""
    quantities: dict[str, tuple[float, float, float, int]] = {}
    failed: dict[str, str] = {}
    waited: float | None = None
    seconds: float = 0.0


class LaterWindow(msgspec.Struct, frozen=True):
    """A window that was recorded after the first one, with the un-profiled steps before it.

    at   training iterations before it was due
    why  every (so many steps) | asked (`advisor attach`, SIGUSR1) | slower (steps became slower)
    """

    at: int
    why: str
    files: list[TraceFile] = []
    steps: StepTimes = StepTimes()
    user_files: list[str] = []


class HeldVariable(msgspec.Struct, frozen=True):
    """Bytes of the tensors that a variable of a running function held."""

    name: str
    function: str
    bytes: int


class OutOfMemory(msgspec.Struct, frozen=True):
    """The script ended because an allocation failed: where, in which iteration, and what held memory then.

    file, line, function   the user's line that asked for memory; empty and 0 where no code of the user's ran
    device                 cuda | cpu
    tried_bytes            that the allocation asked for; None where the exception does not say
    resident_bytes         of the process;  allocated_bytes, reserved_bytes: on its current CUDA device
    weights_bytes, gradients_bytes, state_bytes  that optimizers step and keep, on that device
    variables              the largest, without weights, gradients and state
    """

    step: int = 0
    device: str = "cpu"
    tried_bytes: int | None = None
    file: str = ""
    line: int = 0
    function: str = ""
    resident_bytes: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    weights_bytes: int | None = None
    gradients_bytes: int | None = None
    state_bytes: int | None = None
    variables: list[HeldVariable] = []


class RankRecord(msgspec.Struct, frozen=True):
    """One profiled process."""

    missing: ClassVar[str] = (
        "this trace was not captured by `advisor run`, so its settings are unknown; capture one with `advisor run`"
    )
    rank: int = 0
    local_rank: int | None = None
    local_world_size: int | None = None  # processes of the job on this machine
    world_size: int = 1
    pid: int = 0
    files: list[TraceFile] = []
    steps: StepTimes = StepTimes()
    settings: Settings = Settings()
    loaders: list[Loader] = []
    optimizers: list[Optimizer] = []
    devices: list[dict[str, Any]] = []
    compile: dict[str, Any] | None = None  # counters; graph_breaks, recompiles with reasons
    gc_pauses_us: list[float] | None = None  # inside the un-profiled window
    memory: dict[str, int] | None = None  # torch.cuda.memory_stats subset; peak_allocated_bytes …
    # parameters, parameter_bytes, tensors, modules_left_out; modules, each: path, kind, parameters, parameter_bytes,
    # root (true; left out inside another module), flops (per step, forward and backward; None: not counted)
    model: dict[str, Any] | None = None
    warnings: list[str] = []  # the first few that were shown: file, line, category and text, without secrets
    notes: list[str] = []  # what capture could not do, one sentence each
    vitals: Vitals | None = None
    run: RunTimes | None = None  # None: no training step was seen
    kept_graphs: KeptGraphs | None = None  # None: none were found, or nobody looked
    saves: list[CodePlace] | None = None  # lines of the training loop that write a checkpoint, by its text
    lookups: list[Lookup] = []  # on a CPU; empty: none were seen, or nobody looked
    batch_lengths: list[Lookup] = []  # the same of a few batches after the windows, as the loader gave them
    masks: list[Mask] = []  # of 256 to 4,096 tokens; empty: none were seen, or nobody looked
    loss_labels: list[LossLabels] = []  # of cross entropies; empty: none were seen, or nobody looked
    environment: dict[str, str] | None = None  # of this process in its window, by the same allow-list
    dataflow: Dataflow | None = None  # None: nobody looked
    reused: JudgedOps | None = None  # of an earlier version, or stated by an example
    sparse_products: list[SparseProduct] = []  # as well
    calibration: Measured | None = None  # None: none was asked for, or it failed
    user_files: list[str] = []  # files of the user's code (not site-packages), as seen in line records
    later: list[LaterWindow] = []
    out_of_memory: OutOfMemory | None = None  # None: the script did not end for want of memory


class RunRecord(msgspec.Struct, frozen=True):
    """run.json."""

    schema: str = SCHEMA
    version: int = VERSION
    command: list[str] = []
    versions: dict[str, str] = {}
    environment: dict[str, str] = {}  # an allow-list, never the whole environment
    exit_status: int | None = None  # None while the script still runs
    preflight: list[dict[str, str]] = []  # {id, status, message}
    ranks: list[RankRecord] = []


def read(path: Place) -> RunRecord:
    """run.json as structs.

    Raises InputError (one line) for a damaged or newer file.
    """
    try:
        record = msgspec.json.decode(path.read_bytes(), type=RunRecord)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as failure:
        raise InputError(f"{path}: not a readable run.json ({failure}); run `advisor run` again") from failure
    if record.version > VERSION:
        raise InputError(f"{path}: written by a newer torch-advisor (version {record.version}); upgrade to read it")
    ranks = [_with_dataflow(path.parent, rank) for rank in record.ranks]
    return msgspec.structs.replace(record, ranks=ranks)


def _with_dataflow(folder: Place, rank: RankRecord) -> RankRecord:
    """The rank's record with the path of its dataflow file, beside run.json: content never leads elsewhere."""
    if rank.dataflow is not None and rank.dataflow.file:
        path = folder / Path(rank.dataflow.file).name
        rank = msgspec.structs.replace(rank, dataflow=msgspec.structs.replace(rank.dataflow, file=os.fspath(path)))
    if rank.reused is not None and rank.reused.file:
        why = "which tensors ops read was recorded by an earlier version; capture the run with `advisor run` again"
        rank = msgspec.structs.replace(rank, reused=JudgedOps(why=why))
    return rank

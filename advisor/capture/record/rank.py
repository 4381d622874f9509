"""One profiled process, with its settings."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from advisor.capture.record.calibration import Measured
from advisor.capture.record.code_place import CodePlace, Container, MadeClass, TextBlock
from advisor.capture.record.dataflow import Dataflow, JudgedOps
from advisor.capture.record.held_memory import EvaluationGraph, KeptGraphs, OutOfMemory
from advisor.capture.record.steps import StepTimes, TraceFile
from advisor.capture.record.tensors import Lookup, LossLabels, Mask, SampleLengths, SparseProduct
from advisor.capture.record.training import Loader, Optimizer
from advisor.capture.record.vitals import Vitals
from advisor.capture.record.whole_run import RunTimes


class Attention(msgspec.Struct, frozen=True):
    """What Transformers models choose for attention, where all attention modules are theirs."""

    implementation: str  # attn_implementation: eager | sdpa | flash_attention_2 | …
    dropout: list[str] = []  # names in their configuration that are not zero: attention_probs_dropout_prob, …


class StackTrace(msgspec.Struct, frozen=True):
    """CPU time of formatting a stack: for itself, for each of its frames, and for each file that these are of."""

    us: float
    frame_us: float
    file_us: float


class Settings(msgspec.Struct, frozen=True):
    """Settings that traces do not contain, as they were in the profiled window."""

    matmul_precision: str | None = None  # torch.get_float32_matmul_precision(): highest | high | medium
    matmul_precision_set: bool | None = None  # set by the script itself, even if to the default
    tf32_matmul: bool | None = None
    tf32_cudnn: bool | None = None
    cudnn_benchmark: bool | None = None
    cudnn_deterministic: bool | None = None
    deterministic: bool | None = None
    onednn_enabled: bool | None = None  # torch.backends.mkldnn.enabled; None where torch was built without oneDNN
    autocast: bool | None = None  # an autocast region was entered in the window
    autocast_dtype: str | None = None
    default_dtype: str | None = None
    anomaly_detection: bool | None = None
    stack_trace: StackTrace | None = None  # None: without anomaly detection, which stores one for each node
    flash_sdp: bool | None = (
        None  # torch.backends.cuda.flash_sdp_enabled(), which fused attention on a CPU asks as well
    )
    traced_frames: int | None = None  # that tracemalloc keeps for each allocation; 0: it does not run
    python_tracer: str | None = None  # the package that is called for each call or line of Python; empty: none is
    threads: int | None = None  # torch.get_num_threads() of the rank's process
    numpy_threads: int | None = None  # of the OpenBLAS that NumPy calls
    cores: int | None = None  # cores this process may use (affinity and cgroup quota)
    cpu_bf16: bool | None = None  # this CPU multiplies bf16 in hardware (amx_bf16, avx512_bf16, Arm bf16)
    model_device: str | None = None  # device type of the parameters that got gradients: cpu | cuda | …
    accelerator_available: bool | None = None  # torch sees a usable accelerator
    accelerator_name: str | None = None
    compiled: bool | None = None
    ddp: dict[str, Any] | None = None  # arguments of DistributedDataParallel
    fsdp: dict[str, Any] | None = None  # arguments of FullyShardedDataParallel or fully_shard; units: how many
    framework: str | None = None  # that runs the loop: lightning | transformers | accelerate; None: the script itself
    attention: Attention | None = None  # None: attention of the script's own, or none
    # The user's innermost line in the last call that set: matmul_precision | deterministic | default_dtype |
    # anomaly_detection | flash_sdp | ddp (its constructor) | model (the constructor of the module that is trained) |
    # embedding ROWSxWIDTH (where the first table of that size is made).
    # From the source text, if exactly one line sets it: threads (`set_num_threads`) | tracemalloc (its `start()`) |
    # python_tracer (a profiler of Python's calls that is made or asked for) |
    # NAME value (where the name stands that such a line takes its value from, as the default of an option) |
    # window (the line that registers a separable filter) | double (the line that registers a float64 tensor of a
    # module, else `.double()`, else float64) | checkpointing | requires_grad (of a tensor that is no `Parameter`) |
    # cudnn_benchmark | cudnn_deterministic | onednn_enabled | dense_gradients (what gives `sparse` False) | to_dense |
    # penalty_every (the interval of a gradient penalty, where it is 1) |
    # batch_size NUMBER (where a name such as batch_size, or a part of its, is given that number) |
    # environment variables by name.
    set_at: dict[str, CodePlace] = {}

    @classmethod
    def compute(cls, record: RankRecord) -> Settings:
        """The settings of the analysed rank. Missing for a trace that was not captured by `advisor run`."""
        return record.settings


class LaterWindow(msgspec.Struct, frozen=True):
    """A window that was recorded after the first one, with the un-profiled steps before it.

    at   training iterations before it was due
    why  every (`--every N`) | asked (requested by `advisor attach` or SIGUSR1) | slower (steps became slower) |
         elsewhere (training moved to another loop)
    """

    at: int
    why: str
    files: list[TraceFile] = []
    steps: StepTimes = StepTimes()
    user_files: list[str] = []
    # As in RankRecord; set if the window is the first one of another loop. Others are of the loop of the one before.
    dataflow: Dataflow | None = None
    settings: Settings | None = None
    loaders: list[Loader] | None = None
    evaluation_loaders: list[Loader] | None = None
    optimizers: list[Optimizer] | None = None
    devices: list[dict[str, Any]] | None = None
    memory: dict[str, int] | None = None
    compile: dict[str, Any] | None = None
    model: dict[str, Any] | None = None
    environment: dict[str, str] | None = None
    gc_pauses_us: list[float] | None = None
    vitals: Vitals | None = None
    # As in RankRecord, of this window
    lookups: list[Lookup] = []
    masks: list[Mask] = []
    loss_labels: list[LossLabels] = []
    containers: list[Container] = []


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
    evaluation_loaders: list[Loader] = []  # whose batches no backward pass was for, beside those that trained
    optimizers: list[Optimizer] = []
    devices: list[dict[str, Any]] = []
    compile: dict[str, Any] | None = None  # counters; graph_breaks and recompiles with reasons
    gc_pauses_us: list[float] | None = None  # in the un-profiled steps
    memory: dict[str, int] | None = None  # torch.cuda.memory_stats subset; peak_allocated_bytes …
    # parameters, parameter_bytes, tensors, modules_left_out; modules, each: path, kind, parameters, parameter_bytes,
    # root (true for outermost modules, else absent), flops (per step, forward and backward; None: not counted)
    model: dict[str, Any] | None = None
    warnings: list[str] = []  # the first few that were shown: file, line, category and text, without secrets
    notes: list[str] = []  # what capture could not do, one sentence each
    vitals: Vitals | None = None
    run: RunTimes | None = None  # None: no training step was seen
    evaluation_graph: EvaluationGraph | None = None  # the first one detected
    kept_graphs: KeptGraphs | None = None  # None: none found, or not searched for
    saves: list[CodePlace] | None = None  # lines of the training loop that save a checkpoint, from the source text
    lookups: list[Lookup] = []  # on a CPU; empty: none occurred, or not recorded
    sample_lengths: list[SampleLengths] = []  # in a few batches after the windows
    batch_lengths: list[Lookup] = []  # as `lookups`, in a few batches after the windows, as the loader returned them
    masks: list[Mask] = []  # of 256 to 4,096 tokens; empty: none occurred, or not recorded
    loss_labels: list[LossLabels] = []  # of cross entropies; empty: none occurred, or not recorded
    containers: list[Container] = []  # empty: none occurred, or no lines were recorded
    environment: dict[str, str] | None = None  # of this process in its window, from the same allow-list
    dataflow: Dataflow | None = None  # None: no steps were observed
    reused: JudgedOps | None = None  # from an earlier version, or stated by an example
    sparse_products: list[SparseProduct] = []  # likewise
    calibration: Measured | None = None  # None: not requested, or it failed
    blocks: dict[str, list[TextBlock]] = {}  # by file of the script; absent in earlier versions
    classes: dict[str, list[MadeClass]] = {}  # likewise: those of which the text makes one object
    file_digests: dict[str, str] = {}  # by file of the script: SHA-256 of its bytes, in hexadecimal digits
    line_digests: dict[str, str] = {}  # by file: four hexadecimal digits per line
    user_files: list[str] = []  # files of the user's code (not site-packages) in which lines were recorded
    later: list[LaterWindow] = []
    out_of_memory: OutOfMemory | None = None  # None: the script did not run out of memory

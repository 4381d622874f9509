"""What the ids of a report are called, and how each quantity is defined."""

from __future__ import annotations

from advisor.api import dataclass

from . import _words


@dataclass(frozen=True, slots=True)
class Label:
    """Words for one id: a name for legends and tables, and what the quantity is."""

    name: str
    meaning: str


# Parts of a step, device first; the order is that of the bar in every output.
PARTS: dict[str, Label] = {
    "compute": Label("GPU computes", "kernels other than communication run on the GPU"),
    "exposed_communication": Label("Communication", "the GPU only communicates: no other kernel runs at the same time"),
    "exposed_copy": Label("Copies", "the GPU only copies: no kernel runs at the same time"),
    "idle_input": Label("Waits for input", "the GPU is idle while the training loop waits for its next batch"),
    "idle_sync": Label("Waits after a sync", "the GPU is idle after the host waited for a result"),
    "idle_launch": Label("Waits for launches", "the GPU is idle because the host launches kernels too slowly"),
    "idle_host": Label("Waits for Python", "the GPU is idle while the host does other work"),
    "idle_unknown": Label("Idle, cause unknown", "the GPU is idle and the trace does not show why"),
    "input": Label("Waits for input", "the training loop waits for its next batch"),
    "communication": Label("Communication", "the process exchanges data with other ranks"),
    "forward": Label("Forward", "operators of the forward pass run on the CPU"),
    "backward": Label("Backward", "operators of the backward pass run on the CPU"),
    "optimizer": Label("Optimizer", "the optimizer updates the parameters or clears gradients"),
    "other_ops": Label("Other operators", "operators outside forward, backward and optimizer"),
    "host": Label("Python", "no operator runs: Python code between operators"),
}

# Parts of the watched run, in its order.
RUN_PARTS: dict[str, Label] = {
    "startup": Label("Start-up", "from the start of the process to the end of the first training step"),
    "training": Label("Training steps", "fetching batches, forward and backward passes, the optimizer"),
    "evaluation": Label("Evaluation", "a model is evaluated, or batches are read without training on them"),
    "checkpoints": Label("Checkpoints", "the state of the model is saved"),
    "worker_restarts": Label(
        "Worker restarts", "loader workers start or stop, or the loop waits for their first batch"
    ),
    "logging": Label("Logging", "logs, tables and figures are written between training steps"),
    "epoch_end": Label("Epoch ends", "other work between the last batch of an epoch and the next epoch"),
    "compilation": Label("Compilation", "torch.compile generates code"),
    "other": Label("Other work", "other work between training steps"),
    "end": Label("After the last step", "from the last training step to the end of the recording"),
}

METRICS: dict[str, Label] = {
    "step_time_us": Label("Step time", "median time of one training step; without the profiler if that was measured"),
    "device_busy_share": Label("GPU busy", "share of the window in which a kernel, copy or memset runs on the GPU"),
    "device_idle_share": Label("GPU idle", "share of the window in which nothing runs on the GPU"),
    "communication_share": Label("Communication", "share of the window in which communication kernels run"),
    "exposed_communication_share": Label(
        "Exposed communication", "share of the window in which communication kernels run and no other kernel does"
    ),
    "exposed_copy_share": Label("Exposed copies", "share of the window in which copies run and no kernel does"),
    "input_wait_share": Label(
        "Input wait", "share of the window in which the loop waits for its next batch (while the GPU, if any, is idle)"
    ),
    "fp32_matmul_share": Label(
        "Full fp32 matmul",
        "time of matmuls, convolutions and attention in fp32 without TF32, as a share of GPU busy time "
        "(of the step on a CPU)",
    ),
    "h2d_bytes": Label("Copied to the GPU", "bytes from host to device per step"),
    "h2d_pageable_bytes": Label(
        "… from pageable memory", "bytes per step that the driver first copies to a pinned buffer"
    ),
    "d2h_bytes": Label("Copied from the GPU", "bytes from device to host per step"),
    "copies": Label("Copies", "memory copies on the device per step"),
    "kernels": Label("Kernels", "kernels on the device per step"),
    "launches": Label("Launches", "host calls per step that launch kernels or graphs"),
    "syncs": Label("Synchronizations", "host calls per step that block until the device has finished"),
    "cpu_ops": Label("CPU operators", "operators called on the host per step"),
    "device_allocs": Label("Device allocations", "calls per step that allocate memory from the driver"),
    "collectives": Label("Collectives", "collective operations per step"),
    "recompiles": Label("Recompilations", "compilations per step after warm-up"),
    "optimizer_steps_per_step": Label("Optimizer steps", "per training step; 0.25 means accumulation over four steps"),
    "peak_memory_bytes": Label("Peak memory", "peak device memory allocated"),
    "mfu": Label("Model FLOPs utilization", "the model's FLOPs per second as a share of the device's peak (MFU)"),
    "samples_per_second": Label("Samples per second", "batch size divided by the step time"),
}

RISKS: dict[str, Label] = {
    "exact": Label("Same results", "the change does not affect the results"),
    "draws": Label("Other random draws", "samples are drawn as with another seed; nothing else changes"),
    "numerics": Label("Changes rounding", "results differ by rounding; check that training still converges"),
    "semantics": Label("Changes training", "the training itself changes; check the learning rate and the results"),
}

BASES: dict[str, Label] = {
    "replayed": Label("replayed", "the step was replayed on its dependency graph with this change"),
    "measured": Label("measured", "both sides were measured"),
    "modelled": Label("modelled", "computed from the measured parts of the step, not replayed"),
    "assumed": Label("assumed", "based on an assumption that this run could not verify"),
}

SOURCES: dict[str, str] = {
    "user": "the script's own prof.step()",
    "loader": "the DataLoader's batches",
    "optimizer": "optimizer steps",
    "backward": "backward passes: no DataLoader and no optimizer was detected",
    "repetition": "the repeating sequence of operators: nothing in the trace marks steps",
    "window": "no steps were found: the whole recording counts as one",
}

# Why a range is as wide as it is.
WIDTHS: dict[str, str] = {
    "change": "from what the change itself leaves open",
    "predictions": "from how far predictions were off when they were checked",
    "steps": "from the variation between steps of this run",
    "profiler": "from possible profiler overhead",
    "instead": "from the cost of the replacement ops",
}

SEVERITIES: dict[str, str] = {
    "high": "saves at least 10 % of the step",
    "medium": "saves at least 3 % of the step, or affects at least that much",
    "low": "saves under 3 % of the step, or only an upper bound is known",
}


# Dimensions of a job: nodes, and kinds of parallelism.
DIMENSIONS: dict[str, Label] = {
    "node": Label("Node", "the machine that the rank runs on, counted by lowest rank"),
    "stages": Label("Pipeline stage", "position in the process group that passes activations"),
    "tensor": Label("Tensor place", "position in the process group that splits layers"),
    "context": Label("Context place", "position in the process group that splits sequences"),
    "experts": Label("Expert place", "position in the process group that splits experts"),
    "sharded": Label("Shard", "position in the process group that shards parameters"),
    "data": Label("Data place", "position in the process group that splits batches"),
}


def dimension(name: str) -> Label:
    """The words for a dimension of a job; an unknown id speaks for itself."""
    return DIMENSIONS.get(name) or Label(_words.one_line(name).replace("_", " "), "")


def part(name: str) -> Label:
    """The words for a part of the step; an unknown id speaks for itself."""
    return PARTS.get(name) or Label(_words.one_line(name).replace("_", " "), "")


def run_part(name: str) -> Label:
    """The words for a part of the run; an unknown id speaks for itself."""
    return RUN_PARTS.get(name) or Label(_words.one_line(name).replace("_", " "), "")


def metric(name: str) -> Label:
    """The words for a metric; an unknown id speaks for itself, and names of operators stay whole."""
    if name.startswith("op:"):
        return Label(f"Calls of {_words.one_line(name.removeprefix('op:'))}", "")
    return METRICS.get(name) or Label(_words.one_line(name).replace("_", " "), "")

"""Warnings of PyTorch and others that speak of a slow way, and what to do about each."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from advisor.api import Fix, RankRecord, Source

# As capture writes it: file:line: Category: text
_WRITTEN = re.compile(r"^(?P<file>.+?):(?P<line>\d+): (?P<kind>\w+): (?P<text>.*)$", re.DOTALL)


class Hint(Struct, frozen=True):
    """A piece of a warning's text, what it means for the time of a step, and the change."""

    text: str
    means: str
    fix: Fix


class Warned(Struct, frozen=True):
    """A warning that was shown, with what it hints at. where: the line that it names, where that is the script's."""

    hint: Hint
    where: Source | None
    said: str


def warned(record: RankRecord) -> Iterator[Warned]:
    """The warnings that speak of a slow way; each hint once, the first time it was shown."""
    seen: set[str] = set()
    for text in record.warnings:
        written = _WRITTEN.match(text)
        if written is None:
            continue
        hint = next((one for one in HINTS if one.text in written["text"]), None)
        if hint is None and written["kind"] == "PerformanceWarning":
            hint = _ANY
        if hint is None or hint.text in seen:
            continue
        seen.add(hint.text)
        yield Warned(hint, _place(written["file"], int(written["line"]), record), written["text"])


def _place(file: str, line: int, record: RankRecord) -> Source | None:
    """The line, where its file is one of the script's; a warning names files by their last part alone."""
    own = [one for one in record.user_files if one.rpartition("/")[2] == file]
    return Source(own[0], line) if len(own) == 1 else None


_ANY = Hint(
    "PerformanceWarning",
    "a library reports that it uses a slow path",
    Fix("Follow the advice in the warning", "numerics"),
)

HINTS = (
    Hint(
        "list of numpy.ndarrays is extremely slow",
        "a tensor is created from a list of arrays element by element, hundreds of times slower than from one array",
        Fix("Stack the arrays with NumPy first", "exact", "torch.tensor(arrays)", "torch.from_numpy(np.stack(arrays))"),
    ),
    Hint(
        "not part of single contiguous chunk",
        "the weights of a recurrent layer are copied into one chunk in every forward pass",
        Fix(
            "Call `flatten_parameters()` once, after moving or copying the model",
            "exact",
            "model = copy.deepcopy(model).to(device)",
            "model = copy.deepcopy(model).to(device)\nmodel.rnn.flatten_parameters()",
        ),
    ),
    Hint(
        "non-contiguous, this will lower the performance",
        "an op copies its input in every call because the input is not contiguous",
        Fix(
            "Call `.contiguous()` on the input once",
            "exact",
            "torch.searchsorted(edges, values.t())",
            "values = values.t().contiguous()  # once, before the loop\ntorch.searchsorted(edges, values)",
        ),
    ),
    Hint(
        "There is a performance drop because we have not yet implemented",
        "vmap runs an op once for each sample, because the op has no batching rule",
        Fix("Write this op over the batch without vmap", "numerics"),
    ),
    Hint(
        "fall back to run on the CPU",
        "an op that the device does not support runs on the CPU, with copies there and back",
        Fix("Replace the op with supported ones, or upgrade PyTorch", "numerics"),
    ),
    Hint(
        "There is an imbalance between your GPUs",
        "DataParallel waits in every step for the slower of unequal GPUs",
        Fix(
            "Exclude the slower GPU, or use DistributedDataParallel",
            "numerics",
            "model = nn.DataParallel(model)",
            "model = nn.DataParallel(model, device_ids=[0])  # those of the same kind",
        ),
    ),
    Hint(
        "Grad strides do not match bucket view strides",
        "gradients are copied into the buckets of DistributedDataParallel in another layout, in every step",
        Fix(
            "Convert the model to its memory format before wrapping it",
            "numerics",
            "model = DistributedDataParallel(model)",
            "model = model.to(memory_format=torch.channels_last)  # or contiguous weights\n"
            "model = DistributedDataParallel(model)",
        ),
    ),
    Hint(
        "Unable to hit fast path of CUDAGraphs",
        "the CUDA graph of a compiled model was captured again instead of replayed",
        Fix(
            "Call `torch.compiler.cudagraph_mark_step_begin()`, and finish each backward pass before the next forward",
            "exact",
            "outputs = compiled(inputs)",
            "torch.compiler.cudagraph_mark_step_begin()\noutputs = compiled(inputs)",
        ),
    ),
    Hint(
        "Not enough SMs to use max_autotune_gemm",
        "max-autotune has no effect on matrix multiplications on a device this small, and takes time to compile",
        Fix(
            'Remove `mode="max-autotune"`',
            "numerics",
            'torch.compile(model, mode="max-autotune")',
            "torch.compile(model)",
        ),
    ),
    Hint(
        "Plan failed with",
        "cuDNN could not run the algorithm it chose for a convolution, and took a slower one",
        Fix("Free memory for it (a smaller batch), or upgrade cuDNN with PyTorch", "semantics"),
    ),
    Hint(
        "was not compiled with flash attention",
        "this build of PyTorch lacks flash attention, so a slower implementation runs",
        Fix("Install a build that has it", "numerics", "pip install torch  # from another source", "pip install torch"),
    ),
)

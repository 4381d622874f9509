"""What the script trains with: loaders, optimizers."""

from __future__ import annotations

import msgspec

from advisor.capture.record.code_place import CodePlace


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
    num_workers_at: CodePlace | None = None  # and that of its workers


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

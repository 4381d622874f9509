"""What the script trains with: loaders, optimizers."""

from __future__ import annotations

import msgspec

from advisor.capture.record.code_place import CodePlace


class Pictures(msgspec.Struct, frozen=True):
    """Pictures of one format that are decoded at one line while samples are read.

    width, height  as they are decoded, the median;  bytes: of the file
    times_smaller  how many times smaller nearly all of them are made afterwards (lowest decile); 0.0: some are not
    decode_us      to decode one, the median;  share: that decoding takes of the time to read samples
    smaller_us     to make it smaller, the median
    large_us       in work on all of its pixels before it is made smaller, the mean; by large_by (a class of
                   torchvision's, empty if another line) most, for the user's line large_at
    kept           share of its pixels that is left afterwards, the mean
    small_bytes    of what the whole of it is made smaller to before anything else is done, the median; 0: some are not
    small_us       until that is there, from the decoding on, the median
    asked          the user's outermost line that reads the sample, as `place`
    place          where their pixels are decoded: the user's innermost line; None if a library reads the samples
    """

    format: str
    width: float
    height: float
    times_smaller: float
    decode_us: float
    share: float
    bytes: float = 0.0
    smaller_us: float = 0.0
    large_us: float = 0.0
    large_by: str = ""
    large_at: CodePlace | None = None
    kept: float = 1.0
    small_bytes: float = 0.0
    small_us: float = 0.0
    asked: CodePlace | None = None
    seen: int = 0
    place: CodePlace | None = None


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
    sample_us: float | None = None  # median time to read one sample, if measured
    collate_us: float | None = None  # median time to collate a batch
    sample_why: str = ""  # why sample_us is unknown
    worker_us: list[float] = []  # median time to load a batch, of each measured worker
    core_us: float | None = None  # median time to load a batch in a worker, without its waits for a core
    random_samples: bool | None = None  # any random number generator was used while samples were read
    sampler: str | None = None  # class of the sampler
    sampler_us: float | None = None  # mean time to draw a batch's indices in un-profiled steps, without the longest
    sampler_median_us: float | None = None
    sample_from: tuple[str, int, str] | None = None  # file, first line and name of the script's function for a sample
    collate_from: tuple[str, int, str] | None = None  # and of its collate function
    batches_per_iterator: float | None = None  # of those created in un-profiled steps; None: none was created
    sampler_file: str = ""  # of the sampler's code, unless it is torch's
    sampler_lines: list[list[int]] = []  # first and last line of each of its functions
    sampler_weighted: list[int] = []  # its lines that name a function for weighted sampling
    iterators: int | None = None  # that returned training batches: epochs, if each covers all samples
    file: str = ""  # where it was created: the user's innermost line
    line: int = 0
    function: str = ""
    made_by: str | None = None  # the framework that created it there: lightning | transformers | accelerate
    made_in: str = ""  # the installed package whose code created it, other than torch; empty: the script itself
    batch_size_at: CodePlace | None = None  # where the script states the number
    num_workers_at: CodePlace | None = None  # and the number of workers
    workers_passed_at: CodePlace | None = None  # the argument of a call of several lines, if not in its first
    persistent_off_at: CodePlace | None = (
        None  # where persistent_workers is given False, if not at the call's first line
    )
    pictures: list[Pictures] = []  # in the first batches; empty: none was decoded by Pillow, or not seen
    dataset_at: CodePlace | None = None  # where the dataset is made, by the source text
    sampler_at: CodePlace | None = None  # where its sampler is made, by the source text
    options_at: CodePlace | None = None  # where the arguments that the call unpacks are put together, by the text
    whole_dataset: str = ""  # digest of what the dataset holds, where one of several ranks goes through all of it


class Optimizer(msgspec.Struct, frozen=True):
    """An optimizer whose step() was called."""

    name: str
    foreach: bool | None = None
    foreach_at: CodePlace | None = None  # where it is given False, by the source text, if not at the call's first line
    fused: bool | None = None
    capturable: bool | None = None
    tensors: int | None = None  # parameters with a gradient
    groups: int | None = None  # parameter groups
    settings: int | None = None  # different settings (learning rate, weight decay, …) among them
    device: str = ""
    dtypes: list[str] = []  # of the parameters
    state_dtypes: list[str] = []  # of the state, without single numbers
    state_bytes: int | None = None  # of the state on this rank
    file: str = ""  # where it was created: the user's innermost line
    line: int = 0
    function: str = ""
    made_by: str | None = None  # the framework that created it there: lightning | transformers | accelerate
    made_in: str = ""  # the installed package whose code created it, other than torch; empty: the script itself

"""Examples of broadcasts on a device of four: the rank that sends comes late, or not."""

from __future__ import annotations

from advisor.api import ALLREDUCE, Drawing, Ev, Example, draw

# A broadcast before the forward pass (T) within what a library calls (L), and a reduction after the backward pass.
_STEPS = """
    step   [1                                       ][2                                       ]
    cpu    [L  ]                                     [L  ]
    cpu    [T ]                  [F ][B  ][A ]       [T ]                  [F ][B  ][A ]
    gpu 7                         [K    ][K ]                               [K    ][K ]
    gpu 20  [R                 ]             [N]      [R                 ]             [N]
    """
# The same while the device still computes, on work of its own.
_HIDDEN = """
    step   [1                                       ][2                                       ]
    cpu    [L  ]                                     [L  ]
    cpu    [F ][T ]                  [B  ][A ]       [F ][T ]                  [B  ][A ]
    gpu 7   [K                      ] [K ]            [K                      ] [K ]
    gpu 20      [R                 ]      [N]             [R                 ]      [N]
    """
_DISPATCHER = Ev("accelerate/data_loader.py(861): __iter__", "python_function", launches="")
_OTHER = Ev("train.py(61): batches_of_rank_0", "python_function", launches="")
_READS = Ev("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation", launches="")


def _about(name: str, elements: int) -> dict[str, object]:
    return {"Collective name": name, "dtype": "Long", "In msg nelems": elements, "Group size": 4}


def _drawn(steps: str = _STEPS, within: Ev = _OTHER, sent: int = 1, reduced: int = 1_000_000) -> Drawing:
    return draw(
        steps,
        us=1000,
        world_size=4,
        device="A100",
        L=within,
        T=Ev("c10d::broadcast_", launches="collective"),
        A=ALLREDUCE,
        R=Ev(
            "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "kernel",
            args=_about("broadcast", sent),
        ),
        N=Ev(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "kernel",
            fill=0.3,
            args=_about("allreduce", reduced),
        ),
    )


ROOTS = [
    Example(
        "rank 0 reads for all, and the others wait in a broadcast of 8 bytes",
        _drawn(),
        saves_us=(0, 18_500),
        says=("the GPU waits for the rank that sends", "Once a step one of 8 B"),
        fixes=("such as its own part of the data",),
    ),
    Example(
        "the same by accelerate, which says so in its stack",
        _drawn(within=_DISPATCHER),
        saves_us=(0, 18_500),
        says=("`dispatch_batches`",),
        fixes=("dispatch_batches=False",),
    ),
    Example(
        "a rank that reads batches of its own waits for another value",
        _drawn(within=_READS),
        saves_us=(0, 18_500),
        fixes=("every hundred steps",),
    ),
    Example("the same broadcast while the device computes", _drawn(_HIDDEN), near_miss=True),
    Example(
        "a broadcast of more bytes than anything else: it may need that long",
        _drawn(sent=100_000_000),
        saves_us=(0, 20_000),
        says=("the GPU only communicates",),
    ),
]

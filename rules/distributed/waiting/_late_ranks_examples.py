"""Examples of collectives that wait for a rank."""

from __future__ import annotations

from advisor.api import ALLREDUCE, NCCL, Drawing, Ev, Example, draw

# Four reductions (A, N) and one of another size (C, L), after the backward pass.
_SLOWER = """
    step   [1                                                  ][2                                                  ]
    cpu    [F ][B  ][A                  ][C]                    [F ][B  ][A                  ][C]
    gpu 7   [K    ][K    ]                                       [K    ][K    ]
    gpu 20               [N                             ][L]                  [N                             ][L]
    """


def _drawn(elements: int, others: int) -> Drawing:
    """Reductions of 8 ms each, and one of 3 ms that has the other number of elements."""
    four = Ev(NCCL.name, "kernel", times=4, args=NCCL.args | {"In msg nelems": elements})
    return draw(
        _SLOWER,
        us=1000,
        world_size=2,
        A=Ev(ALLREDUCE.name, launches="collective", times=4),
        C=ALLREDUCE,
        N=four,
        L=Ev(NCCL.name, "kernel", args=NCCL.args | {"In msg nelems": others}),
    )


def _unstated(*lengths: str) -> Drawing:
    """A reduction in each step, whose size the trace does not state: as long as the lane drawn for it."""
    steps = range(1, len(lengths) + 1)
    return draw(
        f"""
        step   {"".join(f"[{number}                           ]" for number in steps)}
        cpu    {"[F ][B  ][A ]                " * len(lengths)}
        gpu 7  {" [K    ][K    ]              " * len(lengths)}
        gpu 20 {"".join(f"{' ' * 14}{one:15}" for one in lengths)}
        """,
        us=1000,
        world_size=2,
        A=ALLREDUCE,
        N=Ev("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "kernel"),
    )


def _unequal(*computed: int) -> Drawing:
    """Steps that compute for so many ms, and end together: a reduction waits for a rank with a larger batch."""
    kernels = "".join(f"[{'K':{ms - 2}}]{'':{28 - ms}}" for ms in computed)
    waits = "".join(f"{'':{ms}}[{'N':{25 - ms}}] " for ms in computed)
    return draw(
        f"""
        step   {"".join(f"[{number}                         ]" for number in range(1, len(computed) + 1))}
        cpu    {"[F][A]                      " * len(computed)}
        gpu 7   {kernels}
        gpu 20  {waits}
        """,
        us=1000,
        world_size=2,
        A=ALLREDUCE,
        N=Ev("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "kernel"),
    )


RANKS = [
    Example(
        # Of 8 ms each at most 3 are sent, and 0.5 at best: 5 of each are no sending, and 4 x 7.5 ms may be gained.
        "a slower rank: reductions of a sixth of the size take longer than the large one",
        _drawn(1_000_000, 6_000_000),
        saves_us=(0, 31_000),
        says=("6 times their size", "a rank that joins late"),
        fixes=("Find the rank that joins late",),
    ),
    Example(
        "a rank that comes late in three steps of four, of whose reductions no size is stated",
        _unstated("[N         ]", "[N          ]", "[N]", "[N       ]"),
        saves_us=(0, 9_000),
        says=("others at their place in a step", "a rank that joins late"),
        fixes=("Find the rank that joins late",),
    ),
    Example(
        "batches of unequal size: the longer this rank computes, the less it waits",
        _unequal(8, 20, 12, 24, 16),
        saves_us=(0, 14_000),
        says=("computes (8 ms to 24 ms a step)", "batches are unequal"),
        fixes=("Group samples by length",),
    ),
    Example(
        "the same reductions, which all take about as long",
        _unstated("[N         ]", "[N          ]", "[N         ]", "[N       ]"),
        saves_us=(0, 12_000),
        says=("9 % of their time overlapped with computation.",),
    ),
    Example(
        "the network: the larger reductions take longer",
        _drawn(6_000_000, 3_000_000),
        saves_us=(0, 36_000),
        fixes=("Use DistributedDataParallel",),
    ),
]

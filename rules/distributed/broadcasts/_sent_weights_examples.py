"""Examples of weights that are broadcast within an optimizer's step, or behind it, on devices of four."""

from __future__ import annotations

from advisor.api import Drawing, Ev, Example, draw

# The step (O), the update in it (U), and what is sent (T, S) until it ends; another rank's part is S.
_WITHIN = """
    step   [1                                       ][2                                       ]
    cpu    [F ][B  ][O            ]                  [F ][B  ][O            ]
    cpu             [U ][T ][S ]                              [U ][T ][S ]
    gpu 7   [K    ][K ][V]                            [K    ][K ][V]
    gpu 20                [R       ][N       ]                      [R       ][N       ]
    """
# The same behind the step.
_BEHIND = """
    step   [1                                       ][2                                       ]
    cpu    [F ][B  ][O ]                             [F ][B  ][O ]
    cpu             [U]  [T ][S ]                             [U]  [T ][S ]
    gpu 7   [K    ][K ][V]                            [K    ][K ][V]
    gpu 20                [R       ][N       ]                      [R       ][N       ]
    """
# The same while the device computes what needs none of it.
_HIDDEN = """
    step   [1                                       ][2                                       ]
    cpu    [F ][B  ][O                 ]             [F ][B  ][O                 ]
    cpu             [U ][F ][T ][S ]                          [U ][F ][T ][S ]
    gpu 7   [K    ][K ][V][K                     ]    [K    ][K ][V][K                     ]
    gpu 20                     [R    ][N    ]                          [R    ][N    ]
    """
_ZERO, _ADAMW = "ZeroRedundancyOptimizer", "AdamW"
# Of one rank, its update goes over all that is sent: 7 x 16 MB at 1.5 TB/s take no ms.
_FEW, _MANY = 4_000_000, 400_000_000


def _sends(root: int | None) -> Ev:
    args = {} if root is None else {"Concrete Inputs": ["", "", f"{root}", "0", "True", "-1"]}
    return Ev("c10d::broadcast_", launches="collective", dims=[[[_FEW]]], args=args)


def _drawn(steps: str, by: str, roots: tuple[int | None, int | None] = (None, None), sent: int = _FEW) -> Drawing:
    about = {"Collective name": "broadcast", "dtype": "Float", "In msg nelems": sent, "Group size": 4}
    kernel = Ev("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "kernel", args=about)
    return draw(
        steps,
        us=1000,
        world_size=4,
        device="A100",
        O=Ev(f"Optimizer.step#{by}.step", "user_annotation", launches=""),
        U="aten::_fused_adamw_",
        V=Ev("multi_tensor_apply_kernel", "kernel"),
        T=_sends(roots[0]),
        S=_sends(roots[1]),
        R=kernel,
        N=kernel,
    )


WEIGHTS = [
    Example(
        "ZeroRedundancyOptimizer sends weights, which nothing hides",
        _drawn(_WITHIN, _ZERO),
        saves_us=(0, 19_000),
        says=("`ZeroRedundancyOptimizer` updates a part of the weights on each rank", "2 broadcasts a step of 32 MB"),
        fixes=("AdamW(model.parameters(), lr=lr, fused=True)", "parameters_as_bucket_view=True"),
    ),
    Example(
        "weights come from two ranks behind the step",
        _drawn(_BEHIND, _ADAMW, (0, 1)),
        saves_us=(0, 19_000),
        says=("An optimizer whose states are cut over ranks",),
        fixes=("AdamW(model.parameters(), lr=lr, fused=True)",),
    ),
    Example(
        "more weights come than this rank's update can have gone over",
        _drawn(_BEHIND, _ADAMW, sent=_MANY),
        saves_us=(0, 19_000),
        says=("An optimizer whose states are cut over ranks",),
    ),
    Example(
        "rank 0 sends what every rank has updated: another matter",
        _drawn(_BEHIND, _ADAMW, (0, 0)),
        saves_us=(0, 20_000),
        says=("the GPU only communicates: 2 collectives",),
    ),
    Example("the same broadcasts while the device computes", _drawn(_HIDDEN, _ZERO), near_miss=True),
]

"""Examples of collectives by who asks for them, and when, in trainings by DistributedDataParallel."""

from __future__ import annotations

from typing import Any

from advisor.api import GLOO, GRADIENT_STORE, OPTIMIZER, Drawing, Ev, Example, draw

# A gradient is stored, and the reducer asks for a reduction, which ends after the backward pass.
_REDUCED = """
    step   [1                                ][2                                ]
    cpu    [F  ][B            ]               [F  ][B            ]
    cpu          [S       ]                         [S       ]
    cpu           [A    ]                            [A    ]
    cpu 2            [G              ]                  [G              ]
    """
# Beside it a line of the script asks for one more, and waits for it.
_ASKED = """
    step   [1                                ][2                                ]
    cpu    [F  ][B            ]  [M]          [F  ][B            ]  [M]
    cpu          [S       ]                         [S       ]
    cpu           [A    ]                            [A    ]
    cpu 2            [G     ]     [H       ]            [G     ]     [H       ]
    """
# The same in the optimizer's step (P), which shares what each rank has updated.
_SHARED = _ASKED.replace(
    "    cpu 2 ", "    cpu                        [P    ]                            [P    ]\n    cpu 2 "
)
# The same below one line (Y), which calls a framework's loop; and below one of its own (Z) in the function it calls.
_RUN = _ASKED.replace(
    "    cpu    [F  ]",
    """    cpu    [Y                                ][Y                                ]
    cpu                         [Z    ]                            [Z    ]
    cpu    [F  ]""",
)
# The script's own one (M) in the model's forward pass (D), before the backward pass.
_IN_MODEL = """
    step   [1                                ][2                                ]
    cpu    [D         ] [B            ][P]    [D         ] [B            ][P]
    cpu    [F  ][M]      [S       ]           [F  ][M]      [S       ]
    cpu                   [A    ]                            [A    ]
    cpu 2        [H  ]      [G             ]        [H  ]      [G             ]
    """
_STORED = Ev(GRADIENT_STORE)


def _drawn(text: str, elements: int, times: int = 1, asked: str = "", *, own_line: bool = False) -> Drawing:
    shape: dict[str, Any] = {"dtypes": ["float"]}
    names: dict[str, Any] = {
        "S": _STORED,
        "A": Ev("c10d::allreduce_", times=times, fill=0.2, dims=[[elements]], **shape),
        "G": Ev(GLOO.name, GLOO.cat, times=times, dims=[[elements]], **shape),
    }
    if asked == "barrier":
        names |= {"M": Ev("c10d::barrier"), "H": Ev("gloo:barrier", GLOO.cat)}
    elif asked:
        names |= {"M": Ev(f"c10d::{asked}", dims=[[2]], **shape), "H": Ev(GLOO.name, GLOO.cat, dims=[[2]], **shape)}
    if "[D " in text:
        names["D"] = Ev("DistributedDataParallel.forward", "user_annotation", launches="")
    if "P" in text:
        names["P"] = OPTIMIZER
    if "Y" in text:
        names |= {"Y": _line(20, "<module>"), "Z": _line(9, "training_step") if own_line else Ev("aten::detach")}
    return draw(text, us=1000, world_size=2, **names)


def _line(number: int, function: str) -> Ev:
    return Ev(f"advisor:line|train.py|{number}|{function}", "user_annotation")


def _ddp(bucket_bytes: int, **settings: Any) -> dict[str, Any]:
    return {"world_size": 2, "settings": {"ddp": {"kind": "DDP", "bucket_cap_bytes": bucket_bytes}, **settings}}


CALLERS = [
    Example(
        "a metric is reduced in each step, beside DistributedDataParallel",
        _drawn(_ASKED, 500_000, asked="allreduce_"),
        facts=_ddp(25 << 20),
        saves_us=(0, 12_000),
        says=("`all_reduce` runs once a step", "in addition to the reductions of DistributedDataParallel"),
    ),
    Example(
        "an optimizer that is sharded sends what it has updated",
        _drawn(_SHARED, 500_000, asked="broadcast_"),
        facts=_ddp(25 << 20),
        saves_us=(0, 12_000),
        says=("`broadcast` runs once a step in the optimizer",),
        fixes=("AdamW(model.parameters()",),
    ),
    Example(
        "the same at a line of the script below a framework's loop",
        _drawn(_ASKED, 500_000, asked="allreduce_"),
        facts=_ddp(25 << 20),
        lines=_drawn(_RUN, 500_000, asked="allreduce_", own_line=True),
        saves_us=(0, 12_000),
        says=("`all_reduce` runs once a step at train.py:9",),
    ),
    Example(
        "a broadcast in each step by a framework's loop, at no line of the script but the one that calls the loop",
        _drawn(_ASKED, 500_000, asked="broadcast_"),
        facts=_ddp(25 << 20),
        lines=_drawn(_RUN, 500_000, asked="broadcast_"),
        near_miss=True,
    ),
    Example(
        "the same where no lines were recorded, and it may be the framework's",
        _drawn(_ASKED, 500_000, asked="broadcast_"),
        facts=_ddp(25 << 20, framework="lightning"),
        near_miss=True,
    ),
    Example(
        "keys that a model gathers from all ranks in its forward pass",
        _drawn(_IN_MODEL, 500_000, asked="allgather_"),
        facts=_ddp(25 << 20),
        saves_us=(0, 6_000),
        says=("runs once a step in the model's forward pass",),
        fixes=("Exchange less",),
    ),
    Example(
        "a barrier in each step",
        _drawn(_ASKED, 500_000, asked="barrier"),
        facts=_ddp(25 << 20),
        saves_us=(0, 12_000),
        says=("`barrier` runs once a step",),
    ),
    Example(
        "an exchange of embeddings, which the model computes with: no metric that could be reduced less often",
        _drawn(_ASKED, 500_000, asked="alltoall_base_"),
        facts=_ddp(25 << 20),
        saves_us="unknown",
        says=("exchange",),
    ),
    Example(
        "buckets of 50 kB",
        _drawn(_REDUCED, 12_500, times=20),
        facts=_ddp(50_000),
        saves_us=(0, 12_000),
        says=("20 times a step, 50 kB at a time", "2 buckets"),
    ),
    Example(
        "buckets of the default size on a slow back end: nothing that a change of the script cures",
        _drawn(_REDUCED, 500_000),
        facts=_ddp(25 << 20),
        near_miss=True,
    ),
]

# Backward passes of compiled graphs (E) on a device; their gradients are reduced when nothing else runs.
_ONE_GRAPH = """
    step   [1                                ][2                                ]
    cpu    [D ][E      ]                      [D ][E      ]
    cpu    [F ][B     ][A ]                   [F ][B     ][A ]
    gpu 7   [K    ][K     ]                    [K    ][K     ]
    gpu 20                 [N        ]                        [N        ]
    """
_TWO_GRAPHS = """
    step   [1                                ][2                                ]
    cpu    [D ][E ][E ]                       [D ][E ][E ]
    cpu    [F ][B ][B ][A ]                   [F ][B ][B ][A ]
    gpu 7   [K    ][K ][K ]                    [K    ][K ][K ]
    gpu 20                 [N        ]                        [N        ]
    """
_NODE = "autograd::engine::evaluate_function: {}Backward{}"
_REDUCES = {"Collective name": "allreduce", "dtype": "Float", "Group size": 16}  # on two machines


def _compiled(steps: str, node: str = _NODE.format("CompiledFunction", ""), elements: int = 30_000_000) -> Drawing:
    reduction = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    return draw(
        steps,
        us=1000,
        world_size=16,
        device="A100",
        D=Ev("DistributedDataParallel.forward", "user_annotation", launches=""),
        E=Ev(node, launches=""),
        B=Ev("aten::mm"),
        A=Ev("c10d::allreduce_", launches="collective", times=2),
        N=Ev(reduction, "kernel", times=2, args=_REDUCES | {"In msg nelems": elements}),
    )


GRAPHS = [
    Example(
        "the backward pass is one compiled graph, and all gradients are reduced after it",
        _compiled(_ONE_GRAPH),
        saves_us=(0, 11_000),
        says=("The compiled backward pass is one graph",),
        fixes=("optimize_ddp = True",),
    ),
    Example(
        "graphs of a model whose backward pass is cut at buckets",
        _compiled(_TWO_GRAPHS, elements=10_000_000),
        saves_us=(0, 11_000),
        says=("none of their time",),
        fixes=("bf16_compress_hook)",),
    ),
    Example(
        "a node of a model that is not compiled",
        _compiled(_ONE_GRAPH, _NODE.format("Mm", 0), 10_000_000),
        saves_us=(0, 11_000),
        fixes=("Reduce gradients in bf16",),
    ),
    Example(
        "all gradients of 240 MB in one bucket, behind the first of 1 MB",
        _compiled(_ONE_GRAPH, _NODE.format("Mm", 0)),
        saves_us=(0, 11_000),
        fixes=("Leave `bucket_cap_mb` at 25",),
    ),
    Example(
        "the same in buckets of 4 MB: fewer of them go first",
        _compiled(_ONE_GRAPH, _NODE.format("Mm", 0), 1_000_000),
        saves_us=(0, 11_000),
        fixes=("bucket_cap_mb=100",),
    ),
]

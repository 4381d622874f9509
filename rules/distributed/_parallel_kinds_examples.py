"""Examples of communication that is not of data-parallel ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.api import FORWARD, GLOO, Drawing, Ev, Example, draw

_PASSES = """
    step   [1                             ][2                             ]
    cpu    [C             ]                [C             ]
    cpu    [F ][T ][W    ]    [B  ]        [F ][T ][W    ]    [B  ]
    cpu        [A]                             [A]
    cpu 2        [G      ]                       [G      ]
    """
_ASKED = Ev("c10d::allreduce_", launches="")


def _drawn(
    outside: Ev, asks: Ev, purposes: Mapping[str, tuple[int, ...]], talks: Ev = GLOO, op: Ev = _ASKED
) -> Drawing:
    """A rank of four on a host. outside: what is around the forward pass;  purposes: of its process groups."""
    waits = Ev("_c10d_functional::wait_tensor")
    drawing = draw(_PASSES, us=1000, world_size=4, C=outside, T=asks, W=waits, A=op, G=talks)
    groups = [
        {"pg_name": str(number), "pg_desc": purpose, "pg_size": len(ranks), "ranks": list(ranks)}
        for number, (purpose, ranks) in enumerate({"default_pg": (0, 1, 2, 3), **purposes}.items())
    ]
    return Drawing(lambda: {**drawing, "distributedInfo": {**drawing["distributedInfo"], "pg_config": groups}})


_NOTHING = Ev("train.py(7): forward", "python_function")
_COMPILED = Ev("## Call CompiledFxGraph fhash ##", "user_annotation")
_FUNCTIONAL = Ev("_c10d_functional::all_reduce")
_GATHERS = Ev("FSDP::all_gather (layers.0)", "user_annotation")
_TWO_BY_TWO = {"mesh_dp": (0, 2), "mesh_tp": (0, 1)}

# On a device: an op asks within what is around it (C), and its kernel runs while nothing else does.
_ON_DEVICE = """
    step   [1                             ][2                             ]
    cpu    [C        ]                     [C        ]
    cpu    [F ][A ][B ]                    [F ][A ][B ]
    gpu 7   [K   ]           [K    ]       [K   ]           [K    ]
    gpu 20        [N        ]                    [N        ]
    """


def _talks(name: str, dtype: str = "Float") -> Ev:
    about = {"Collective name": name, "dtype": dtype, "In msg nelems": 1_000_000, "Group size": 8}
    return Ev(f"ncclDevKernel_{name}(ncclDevKernelArgsStorage<4096ul>)", "kernel", args=about)


def _of_experts(ranks: int) -> Ev:
    """Tokens that go to experts on so many ranks."""
    about = {"Collective name": "all_to_allv", "dtype": "BFloat16", "In msg nelems": 1_000_000, "Group size": ranks}
    about |= {"Process Group Name": "3", "Process Group Description": "ep_group"}
    return Ev("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "kernel", args=about)


def _with(asks: str, talks: Ev, around: Ev | str = "aten::add", forward: Ev | str = FORWARD) -> Drawing:
    outside = Ev(around, launches="") if isinstance(around, str) else around
    asked = Ev(asks, launches="collective")
    return draw(_ON_DEVICE, us=1000, world_size=8, C=outside, F=forward, A=asked, N=talks, device="H100")


# Weights are gathered for the forward pass (H) and, as they were given back, again for the backward pass (I).
_AGAIN = """
    step   [1                                    ][2                                    ]
    cpu    [C           ]                         [C           ]
    cpu    [H][F ][I][B ][A]                      [H][F ][I][B ][A]
    gpu 7          [K   ]     [K    ]                     [K   ]     [K    ]
    gpu 20  [N    ]      [M   ]     [R   ]         [N    ]      [M   ]     [R   ]
    """


def _gathered(twice: bool) -> Drawing:
    asks = {word: Ev("c10d::_allgather_base_", launches="collective") for word in "HI"}
    gather, reduction = _talks("_allgather_base", "BFloat16"), _talks("_reduce_scatter_base", "BFloat16")
    lanes = _AGAIN if twice else _AGAIN.replace("[I]", "   ").replace("[M   ]", "      ")
    rows = {"C": Ev("FullyShardedDataParallel.forward", launches=""), "F": FORWARD, "N": gather, "M": gather} | asks
    last = {"A": Ev("c10d::_reduce_scatter_base_", launches="collective"), "R": reduction}
    known: dict[str, Any] = {word: row for word, row in (rows | last).items() if f"[{word}" in lanes}
    return draw(lanes, us=1000, world_size=8, device="H100", **known)


_TABLES = Ev("fbgemm::permute_pooled_embs")
_SEND_RECEIVE = Ev("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "kernel")
_PIPELINE = Ev("## start_sparse_data_dist 1 ##", "user_annotation")
_UNIT = Ev("FSDP::post_backward_reduce (layers.0)", "user_annotation")


def _fully(**policy: Any) -> dict[str, Any]:
    known = {"kind": "FSDP2", "units": 12, "reshard_after_forward": False, "cpu_offload": False}
    return {"world_size": 8, "local_world_size": 8, "settings": {"fsdp": known | policy}}


_BF16 = {"param_dtype": "bfloat16", "reduce_dtype": "bfloat16"}

LIBRARIES = [
    Example(
        "embeddings are exchanged, in kernels that are called send and receive",
        _with("c10d::alltoall_base_", _SEND_RECEIVE, forward=_TABLES),
        saves_us=(0, 9500),
        says=("to exchange embeddings between all ranks",),
        fixes=("TrainPipelineSparseDist",),
    ),
    Example(
        "the same where torchrec's pipeline runs already",
        _with("c10d::alltoall_base_", _SEND_RECEIVE, _PIPELINE, _TABLES),
        saves_us=(0, 5000),
        fixes=("QCommsConfig",),
    ),
    Example(
        "an exchange of nobody knows what",
        _with("c10d::alltoall_base_", _talks("all_to_allv")),
        saves_us="unknown",
        says=("to exchange numbers between all ranks",),
    ),
    Example(
        "gradients are reduced to shards, by whom the trace does not say: no_sync() may raise an error there",
        _with("c10d::_reduce_scatter_base_", _talks("_reduce_scatter_base")),
        saves_us="unknown",
        says=("to gather and reduce shards of the model, by an unnamed library",),
    ),
    Example(
        "DeepSpeed reduces after the backward pass",
        _with("c10d::_reduce_scatter_base_", _talks("_reduce_scatter_base"), "deepspeed/runtime/engine.py(1900): step"),
        saves_us=(0, 9500),
        says=("by DeepSpeed",),
        fixes=("overlap_comm",),
    ),
    Example(
        "DeepSpeed gathers parameters, too: with ZeRO 3 reductions overlap by default",
        _with(
            "c10d::_reduce_scatter_base_",
            _talks("_reduce_scatter_base"),
            "deepspeed/runtime/zero/partitioned_param_coordinator.py(291): fetch_sub_module",
        ),
        saves_us=(0, 9500),
        says=("by DeepSpeed",),
        fixes=("stage3_prefetch_bucket_size",),
    ),
    Example(
        "the same by the name of its range alone",
        _with(
            "c10d::_reduce_scatter_base_",
            _talks("_reduce_scatter_base"),
            "PartitionedParameterCoordinator.fetch_sub_module",
        ),
        saves_us=(0, 9500),
        says=("by DeepSpeed",),
        fixes=("stage3_prefetch_bucket_size",),
    ),
    Example(
        "fully_shard in fp32",
        _with("c10d::_reduce_scatter_base_", _talks("_reduce_scatter_base"), _UNIT),
        facts=_fully(param_dtype=None, reduce_dtype=None),
        saves_us=(0, 5500),
        fixes=("param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16",),
    ),
    Example(
        "fully_shard whose policy is bf16 already",
        _with("c10d::_reduce_scatter_base_", _talks("_reduce_scatter_base", "BFloat16"), _UNIT),
        facts=_fully(**_BF16),
        saves_us=(0, 11000),
        fixes=("set_modules_to_forward_prefetch",),
    ),
    Example(
        "the same over two nodes",
        _with("c10d::_reduce_scatter_base_", _talks("_reduce_scatter_base", "BFloat16"), _UNIT),
        facts=_fully(**_BF16) | {"world_size": 16},
        saves_us=(0, 5500),
        fixes=("HSDP",),
    ),
    Example(
        "parameters in host memory",
        _with("c10d::_reduce_scatter_base_", _talks("_reduce_scatter_base", "BFloat16"), _UNIT),
        facts=_fully(**_BF16 | {"cpu_offload": True}),
        saves_us="unknown",
        fixes=("Keep parameters on the device",),
    ),
    Example(
        "FullyShardedDataParallel, which is deprecated, in fp32",
        _with("c10d::_reduce_scatter_base_", _talks("_reduce_scatter_base"), "FullyShardedDataParallel.forward"),
        saves_us="unknown",
        says=("by FullyShardedDataParallel",),
    ),
    Example(
        "FullyShardedDataParallel gathers weights again for the backward pass",
        _gathered(twice=True),
        saves_us=(0, 6000),
        fixes=("ShardingStrategy.SHARD_GRAD_OP",),
    ),
    Example(
        "it keeps them: one gather for each reduction",
        _gathered(twice=False),
        saves_us="unknown",
        near_miss=True,
    ),
]

KINDS = [
    Example(
        "tokens go to experts of sixteen ranks, and the step waits",
        _with("c10d::alltoall_base_", _of_experts(16)),
        saves_us="unknown",
        says=("with experts on other ranks",),
        fixes=("within a node",),
    ),
    Example(
        "the same in a group of eight, which a node has",
        _with("c10d::alltoall_base_", _of_experts(8)),
        saves_us="unknown",
        fixes=("Send tokens in parts",),
    ),
    Example(
        "layers split over two ranks exchange tensors in each pass",
        _drawn(_NOTHING, _FUNCTIONAL, _TWO_BY_TWO),
        saves_us=(0, 9000),
        says=("for layers that are split over 2 ranks", "1 collective a step, with"),
    ),
    Example(
        "the same from compiled code",
        _drawn(_COMPILED, _FUNCTIONAL, _TWO_BY_TWO),
        saves_us=(0, 9000),
        says=("launched by compiled code",),
    ),
    Example(
        "shards are gathered and reduced",
        _drawn(_NOTHING, _GATHERS, {}),
        saves_us=(0, 2500),
        says=("to gather and reduce shards of the model",),
    ),
    Example(
        "shards are gathered in compiled code",
        _drawn(_COMPILED, _FUNCTIONAL, {"mesh_fsdp": (0, 1)}),
        saves_us=(0, 9000),
        says=("to gather and reduce shards of the model", "launched by compiled code"),
    ),
    Example(
        "a stage of a pipeline waits for what another computes",
        _drawn(_NOTHING, _NOTHING, {}, Ev("gloo:recv", "user_annotation"), Ev("c10d::recv_", launches="")),
        near_miss=True,
    ),
    Example(
        "a stage of a pipeline on a device: what it waits for, other ranks know",
        _with("c10d::recv_", Ev("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "kernel")),
        saves_us="unknown",
        says=("with other stages of the pipeline",),
        fixes=("more micro-batches",),
    ),
    Example(
        "NCCL's kernel for sends and receives, which makes exchanges as well, without who launched it",
        draw(
            """
            step   [1                 ][2                 ]
            cpu    [F  ]   [F  ]       [F  ]   [F  ]
            gpu 7   [K  ]      [K     ] [K  ]      [K     ]
            gpu 20       [N ]                [N ]
            """,
            us=1000,
            N=Ev("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "kernel"),
        ),
        saves_us="unknown",
        says=("by sends and receives or exchanges",),
    ),
]

"""Examples of communication that is not of data-parallel ranks."""

from __future__ import annotations

from collections.abc import Mapping

from advisor.api import BACKWARD, FORWARD, GLOO, Drawing, Ev, Example, draw

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
    drawing = draw(_PASSES, us=1000, world_size=4, C=outside, F=FORWARD, T=asks, W=waits, B=BACKWARD, A=op, G=talks)
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

KINDS = [
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
        saves_us=None,
        near_miss=True,
    ),
]

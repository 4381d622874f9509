"""Examples of batches that are too small, and of some that are not."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from advisor.api import ELEMENTWISE, GRADIENT_STORE, NEXT_WORKERS, Drawing, Ev, Example, draw


def _layer(batch: int, width: int) -> Ev:
    return Ev("aten::addmm", dims=[[width], [batch, width], [width, width]], dtypes=["float"] * 3)


def _backward(batch: int, width: int) -> Ev:
    return Ev("aten::mm", dims=[[width, batch], [batch, width]], dtypes=["float"] * 2)


_STEPS = """
    step   [1                         ][2                         ]
    cpu    [F        ]        [O     ] [F        ]        [O     ]
    cpu 2             [B     ]                    [B     ]
    """
_HANDED_OVER = """
    step   [1                                     ][2                                     ]
    cpu    [D          ][F        ]        [O     ] [D          ][F        ]        [O     ]
    cpu 2                         [B     ]                                  [B     ]
    """
_OPTIMIZER = Ev("Optimizer.step#SGD.step", "user_annotation")


def _known(batch: int, num_workers: int = 0) -> dict[str, object]:
    loader = {"batch_size": batch, "num_workers": num_workers, "sample_us": 20.0, "dataset_size": 2000}
    return {"settings": {"cores": 2, "threads": 2}, "loaders": [loader]}


_UPDATED = """
    step   [1                         ][2                         ]
    cpu    [F        ]        [O     ] [F        ]        [O     ]
    cpu 2             [B     ]                    [B     ]
    gpu 7  [K        ][K     ]         [K        ][K     ]
    """


def _launched(batch: int) -> Drawing:
    kernel = Ev(ELEMENTWISE.name, "kernel", fill=0.2)
    return draw(_UPDATED, us=50, F=_layer(batch, 256), B=_backward(batch, 256), O=_OPTIMIZER, K=kernel)


# A pass stores a gradient (S), the next one adds its own to that (T, A).
_ADDED = """
    step   [1                                                ][2                                                ]
    cpu    [F        ][B     ][S ][F        ][B     ][T ][O ][F        ][B     ][S ][F        ][B     ][T ][O ]
    cpu                                              [A]                                               [A]
    gpu 7    [K      ][K   ]        [K      ][K    ]            [K      ][K   ]        [K      ][K    ]
    """


def _added(second: str) -> Drawing:
    """Two backward passes in a step; second: what the other one does to the gradient."""
    stores = Ev(GRADIENT_STORE, dims=[[256, 256]], launches="")
    kernel, adds = Ev(ELEMENTWISE.name, "kernel", fill=0.2), Ev(second, launches="")
    forward = replace(_layer(4, 256), args={"Sequence number": 1, "Fwd thread id": 0})  # where a pass begins
    boxes: dict[str, Any] = {
        "F": forward,
        "B": _backward(4, 256),
        "O": _OPTIMIZER,
        "K": kernel,
        "S": stores,
        "T": stores,
    }
    return draw(_ADDED, us=50, A=adds, **boxes)


OF_SMALL_BATCHES = [
    Example(
        "gradients of two batches of four are added up in a step of a GPU that waits for launches",
        _added("aten::add_"),
        facts=_known(4),
        saves_us=(900, 1150),  # half of the launches, of which a pass takes 1.15 ms
        says=("accumulates gradients of 2 batches of 4 samples", "one batch of 8 samples"),
        fixes=("call optimizer.step() after each batch",),
    ),
    Example(
        "the second pass replaces the gradient: two models, or two updates",
        _added("aten::detach"),
        facts=_known(4),
        saves_us=(0, 2000),
        says=("trains on 4 samples",),
    ),
    Example(
        "four samples of a small model on a CPU",
        draw(_STEPS, us=25, F=_layer(4, 256), B=_backward(4, 256), O=_OPTIMIZER),
        facts=_known(4),
        saves_us=(480, 650),
        says=("batch_size=", "samples/s instead of"),
    ),
    Example(
        "four samples that workers hand over for longer than they load them",
        draw(_HANDED_OVER, us=25, D=NEXT_WORKERS, F=_layer(4, 256), B=_backward(4, 256), O=_OPTIMIZER),
        facts=_known(4, num_workers=1),
        saves_us=(700, 870),
        says=("batch_size=", "samples/s instead of"),
    ),
    Example(
        "one sample of a small model on a CPU",
        draw(_STEPS, us=25, F=_layer(1, 256), B=_backward(1, 256), O=_OPTIMIZER),
        facts=_known(1),
        saves_us=(400, 700),
        says=("trains on 1 sample, and",),
    ),
    Example(
        "products that take far longer than their work explains: somebody else had the cores",
        draw(_STEPS, us=1000, F=_layer(4, 256), B=_backward(4, 256), O=_OPTIMIZER),
        facts=_known(4),
        near_miss=True,
        skipped="as their work explains",
    ),
    Example(
        "the same with 512 samples: the samples are the cost",
        draw(_STEPS, us=100, F=_layer(512, 256), B=_backward(512, 256), O=_OPTIMIZER),
        facts=_known(512),
        near_miss=True,
    ),
    Example(
        "four samples of a model that is large enough to need the whole step",
        draw(_STEPS, us=100, F=_layer(4, 4096), B=_backward(4, 4096), O=_OPTIMIZER),
        facts=_known(4),
        near_miss=True,
    ),
    Example(
        "gradients of 32 batches of two are added up, and no update lies in the window",
        draw(_STEPS.replace("[O     ]", "        "), us=25, F=_layer(2, 256), B=_backward(2, 256)),
        facts=_known(2) | {"steps": {"count": 640, "optimizer_steps": 20}},
        saves_us=(300, 650),
        says=("an update on 64",),
    ),
    Example(
        "sixteen samples: a size that people choose for the loss",
        draw(_STEPS, us=25, F=_layer(16, 256), B=_backward(16, 256), O=_OPTIMIZER),
        facts=_known(16),
        near_miss=True,
    ),
    Example(
        "four sequences whose tokens are merged into the rows of each layer: the tokens are the cost",
        draw(
            _STEPS,
            us=100,
            F=Ev("aten::addmm", dims=[[512], [4 * 256, 512], [512, 512]], dtypes=["float"] * 3),
            B=Ev("aten::gelu", dims=[[4, 256, 512]], dtypes=["float"]),
            O=_OPTIMIZER,
        ),
        facts=_known(4),
        near_miss=True,
    ),
    Example(
        "a GPU that waits for launches",
        _launched(4),
        facts=_known(4),
        saves_us=(0, 1100),
        says=("if the memory of the device allows", "fewer launches leave the training as it is"),
    ),
    Example(
        "a batch of eight that the loop takes apart, on a GPU that waits for launches",
        draw(
            """
            step   [1                             ][2                             ]
            cpu    [X ][F        ]        [O     ] [X ][F        ]        [O     ]
            cpu 2                 [B     ]                        [B     ]
            gpu 7      [K        ][L     ]             [K        ][L     ]
            """,
            us=50,
            X=Ev(
                "aten::select", dims=[[8, 256], [], []], args={"Concrete Inputs": ["", "0", "3"]}, times=8, launches=""
            ),
            F=replace(_layer(1, 256), times=8),
            B=_backward(1, 256),
            O=_OPTIMIZER,
            K=Ev(ELEMENTWISE.name, "kernel", times=8, fill=0.2),
            L=Ev(ELEMENTWISE.name, "kernel", fill=0.2),
        ),
        facts={"settings": {"cores": 2, "threads": 2}},
        saves_us=(650, 1350),
        says=("takes a batch of 8 apart", "8 times, on 1 sample each"),
        fixes=("criterion(model(batch), targets)",),
    ),
    Example(
        "a GPU that is busy all the time",
        draw(
            """
            step   [1                         ][2                         ]
            cpu    [F  ]        [O     ]       [F  ]        [O     ]
            cpu 2       [B     ]                    [B     ]
            gpu 7   [K               ][K       ][K               ][K      ]
            """,
            us=100,
            F=_layer(4, 256),
            B=_backward(4, 256),
            O=_OPTIMIZER,
        ),
        facts=_known(4),
    ),
    Example(
        "a GPU that waits for launches, and layers whose rows are the tokens of all sequences",
        draw(
            _UPDATED,
            us=50,
            F=_layer(512, 256),
            B=Ev("aten::gelu", dims=[[4, 128, 256]], dtypes=["float"]),
            O=_OPTIMIZER,
            K=Ev(ELEMENTWISE.name, "kernel", fill=0.2),
        ),
        facts={"settings": {"cores": 2, "threads": 2}},
        saves_us=(0, 1350),
        says=("trains on 512 rows", "times the batch should give", "rows/s instead of"),
        fixes=("2 * batch_size",),
    ),
    Example(
        "a GPU that waits for launches on 1,024 samples: what still more samples are worth is not known",
        _launched(1024),
        facts=_known(1024) | {"loaders": [{"batch_size": 1024, "num_workers": 0, "sample_us": 0.01}]},
        saves_us="unknown",
        says=("may need as many updates",),
    ),
    Example(
        "inference: no optimizer steps",
        draw(_STEPS.replace("[O     ]", "        "), us=10, F=_layer(4, 256)),
        facts=_known(4),
        near_miss=True,
    ),
]

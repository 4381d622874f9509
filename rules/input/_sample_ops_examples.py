"""Examples of tensor ops that samples run one by one, without a device and without a core for workers."""

from __future__ import annotations

from advisor.api import NEXT, Drawing, Ev, Example, draw

_SAMPLES = """
    step   [1                          ][2                          ]
    cpu    [A                  ][F ][B ][A                  ][F ][B ]
    cpu    [D                 ]         [D                 ]
    cpu    [L                ]          [L                ]
    cpu    [S                ]          [S                ]
    """


def _drawn(each: int, dims: list[list[int]]) -> Drawing:
    """Fetches in which a line runs so many ops on tensors of this shape."""
    return draw(
        _SAMPLES,
        us=1000,
        A=Ev("train.py(48): train"),
        D=NEXT,
        L=Ev("data.py(24): __getitem__"),
        S=Ev("aten::mul", dims=dims, dtypes=["float", "float"], times=each, fill=0.9),
    )


_FACTS: dict[str, object] = {
    "settings": {"cores": 2, "threads": 2},
    "loaders": [
        {
            "num_workers": 0,
            "batch_size": 32,
            "dataset_size": 2000,
            "collate": "default_collate",
            "sample_us": 550.0,
            "collate_us": 100.0,
            "random_samples": True,
        }
    ],
    "steps": {
        "unprofiled_us": [26_000.0] * 40,
        "unprofiled_parts_us": {
            "fetch": [17_500.0] * 40,
            "backward": [4_000.0] * 40,
            "optimizer": [100.0] * 40,
            "rest": [4_400.0] * 40,
        },
    },
}

ON_SAMPLES = [
    Example(
        "without a GPU, 32 samples that random numbers make anew, each with the same ops on tensors of the same shape",
        _drawn(320, [[3, 16, 16], []]),
        facts=_FACTS,
        saves_us=(1_000, 20_000),
        says=("batches are loaded in the training process itself", "data.py:24"),
        fixes=("for images in loader",),
    ),
    Example(
        "without a GPU, the same with ops that some of the samples do not have",
        _drawn(330, [[3, 16, 16], []]),
        facts=_FACTS,
        saves_us=(0, 20_000),
        says=("batches are loaded in the training process itself", "data.py:24"),
    ),
]

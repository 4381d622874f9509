"""Examples of pictures that are decoded at a far larger size than the one they are used at, and of uneven waits."""

from __future__ import annotations

from advisor.api import NEXT, NEXT_WORKERS, Example, draw

_ON_CPU = """
    step   [1                 ][2                 ]
    cpu    [D       ][F ][B ]  [D       ][F ][B ]
    """
_IN_LOOP = draw(_ON_CPU, us=1000, D=NEXT)
_SHORT = "step [1        ][2        ][3        ][4        ]\ncpu  [D][F ][B ][D][F ][B ][D][F ][B ][D][F ][B ]"
_PHOTOS: dict[str, object] = {
    "format": "JPEG",
    "width": 1024,
    "height": 768,
    "bytes": 120_000,
    "times_smaller": 6.9,
    "decode_us": 6000.0,
    "smaller_us": 1500.0,
    "share": 0.6,
    "seen": 64,
    "place": {"file": "train.py", "line": 50, "function": "__getitem__"},
}
# Cropped, and hardly made smaller: they have to be decoded at this size.
_COLOURS: dict[str, object] = {
    "times_smaller": 1.2,
    "decode_us": 2000.0,
    "share": 0.3,
    "large_us": 4000.0,
    "large_by": "ColorJitter",
    "large_at": {"file": "train.py", "line": 31, "function": ""},
    "kept": 0.07,
}
# All of a picture is resized before anything is drawn by lot.
_RESIZED: dict[str, object] = {
    "decode_us": 300.0,
    "smaller_us": 80.0,
    "share": 0.5,
    "small_bytes": 50_000.0,
    "small_us": 400.0,
    "asked": {"file": "train.py", "line": 72, "function": "__getitem__"},
}


def _loader(pictures: dict[str, object] | None, workers: int = 0, **changes: object) -> dict[str, object]:
    known: dict[str, object] = {"num_workers": workers, "batch_size": 16, "dataset_size": 64, "collate_us": 200.0}
    seen = {"pictures": [_PHOTOS | pictures]} if pictures is not None else {}
    known |= {"sample_us": 550.0, "random_samples": True}
    return {"settings": {"cores": 2, "threads": 2}, "loaders": [known | seen | changes]}


def _steps(waits: list[float]) -> dict[str, object]:
    """Steps that take 8 ms besides their waits, three for the backward pass."""
    rest: dict[str, list[float]] = {"backward": [3000.0], "optimizer": [500.0], "rest": [4500.0]}
    parts = {"fetch": waits, **{name: us * len(waits) for name, us in rest.items()}}
    return {"unprofiled_us": [8000.0 + us for us in waits], "unprofiled_parts_us": parts}


ON_PICTURES = [
    Example(
        "without a GPU, photographs that are decoded at 1024 x 768 and resized to 148 x 111",
        _IN_LOOP,
        facts=_loader({}),
        saves_us=(2800, 4600),
        says=("JPEG pictures of 1,024 x 768", "6.9 times smaller", "train.py:50"),
        fixes=("draft",),
    ),
    Example(
        "without a GPU, PNG files, which no decoder makes smaller",
        _IN_LOOP,
        facts=_loader({"format": "PNG"}),
        saves_us=(5700, 6800),
        fixes=("Store smaller copies",),
    ),
    Example(
        "without a GPU, two workers that decode them, waited for in each step",
        draw(_ON_CPU, us=1000, D=NEXT_WORKERS),
        facts=_loader({}, 2),
        saves_us=(3000, 9200),
        says=("JPEG pictures",),
        fixes=("draft",),
    ),
    Example(
        "two workers that decode them for a GPU, with cores that are free for more workers",
        draw(
            """
            step   [1                 ][2                 ][3                 ]
            cpu    [D       ][F ]      [D       ][F ]      [D       ][F ]
            gpu 7             [K     ]           [K     ]            [K     ]
            """,
            us=1000,
            D=NEXT_WORKERS,
        ),
        facts=_loader({}, 2) | {"settings": {"cores": 16}},
        saves_us=(3000, 9200),
        says=("The GPU waits", "JPEG pictures"),
    ),
    Example(
        "without a GPU, photographs that are resized alike in each epoch, and fit in memory",
        _IN_LOOP,
        facts=_loader(_RESIZED, iterators=3),
        saves_us=(5800, 6200),
        says=("made 6.9 times smaller in each epoch", "all 64 small ones take 3.2 MB"),
        fixes=("keep the small ones in memory",),
    ),
    Example(
        "without a GPU, the same in a single epoch",
        _IN_LOOP,
        facts=_loader(_RESIZED, iterators=1),
        saves_us=(2000, 5000),
        fixes=("draft",),
        near_miss=True,
    ),
    Example(
        "without a GPU, more small photographs than memory holds",
        _IN_LOOP,
        facts=_loader(_RESIZED, iterators=3, dataset_size=1_000_000),
        saves_us=(2000, 5000),
        fixes=("draft",),
        near_miss=True,
    ),
    Example(
        "without a GPU, samples that are there in less time than a photograph takes: the script keeps them",
        _IN_LOOP,
        facts=_loader(_RESIZED | {"small_us": 4000.0}, iterators=3),
        saves_us=(2000, 5000),
        fixes=("draft",),
        near_miss=True,
    ),
    Example(
        "without a GPU, colours of whole photographs, of which a fifteenth is used",
        _IN_LOOP,
        facts=_loader(_COLOURS),
        saves_us=(4900, 5200),
        says=("ColorJitter works on whole pictures of 1,024 x 768 at train.py:31", "a batch gets 7 %"),
        fixes=("Crop or resize first",),
    ),
    Example(
        "without a GPU, two workers that change colours of whole photographs, waited for in each step",
        draw(_ON_CPU, us=1000, D=NEXT_WORKERS),
        facts=_loader(_COLOURS, 2),
        saves_us=(5400, 10000),
        says=("ColorJitter works on whole pictures",),
        fixes=("Crop or resize first",),
    ),
    Example(
        "without a GPU, colours of photographs that hardly lose a pixel later",
        _IN_LOOP,
        facts=_loader(_COLOURS | {"kept": 0.95}),
        saves_us="unknown",
        near_miss=True,
    ),
    Example(
        "without a GPU, colours of what was cut out of photographs",
        _IN_LOOP,
        facts=_loader(_COLOURS | {"large_us": 0.0}),
        saves_us="unknown",
        near_miss=True,
    ),
    Example(
        "without a GPU, photographs of which random crops are as small as the network wants them",
        _IN_LOOP,
        facts=_loader({"times_smaller": 1.2}),
        saves_us="unknown",
        says=("batches are loaded in the training process itself",),
        near_miss=True,
    ),
    Example(
        "without a GPU, photographs that are cropped and never made smaller",
        _IN_LOOP,
        facts=_loader({"times_smaller": 0.0}),
        saves_us="unknown",
        near_miss=True,
    ),
    Example(
        "without a GPU, pictures that take a twentieth of the time of their samples",
        _IN_LOOP,
        facts=_loader({"share": 0.03}),
        saves_us="unknown",
        near_miss=True,
    ),
    Example(
        "without a GPU, epochs of four steps that each begin with a wait for two workers",
        draw(_SHORT, us=1000, D=NEXT_WORKERS),
        facts=_loader(None, 2, sample_us=2000.0, persistent_workers=True)
        | {"steps": _steps([30e3, 2e3, 1e3, 1e3] * 10)},
        saves_us=(0, 5500),
        says=("8.5 ms of an average step (52 %)", "every 4 steps, as an epoch begins"),
    ),
    Example(
        "without a GPU, waits that are long now and then",
        draw(_SHORT, us=1000, D=NEXT_WORKERS),
        facts=_loader(None, 2, sample_us=2000.0, persistent_workers=True)
        | {"steps": _steps([1e3, 2e3, 1e3, 1e3] * 9 + [30e3, 1e3, 1e3, 30e3])},
        saves_us=(0, 4000),
        near_miss=True,
    ),
]

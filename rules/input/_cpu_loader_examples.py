"""Examples of loaders without a device, where what their batches cost is known."""

from __future__ import annotations

from advisor.api import NEXT, NEXT_WORKERS, Drawing, Ev, Example, draw

_ON_CPU = """
    step   [1                 ][2                 ]
    cpu    [D       ][F ][B ]  [D       ][F ][B ]
    cpu           [S]                 [S]
    """


def _loader(**changes: object) -> dict[str, object]:
    known: dict[str, object] = {"num_workers": 0, "batch_size": 32, "dataset_size": 2000, "collate": "default_collate"}
    return {"settings": {"cores": 2, "threads": 2}, "loaders": [known | changes]}


_ROWS = """
    step   [1                 ][2                 ]
    cpu    [D       ][F ][B ]  [D       ][F ][B ]
    cpu    [T   ] [S]          [T   ] [S]
    """

_OWN: dict[str, object] = {"sampler": "Balanced", "sampler_file": "train.py", "sampler_lines": [[24, 26]]}

_ASKED = """
    step   [1                 ][2                 ]
    cpu    [A         ][F ][B ][A         ][F ][B ]
    cpu    [D       ]          [D       ]
    """
_ANEW: dict[str, object] = {"sampler_us": 2000.0, "sampler_median_us": 2.0, "dataset_size": 300_000}

_LISTS = """
    step   [1                                 ][2                                 ]
    cpu    [D                       ][F ][B ]  [D                       ][F ][B ]
    cpu    [T][T][T][T][T][T][T][T]            [T][T][T][T][T][T][T][T]
    """


def _of_lists(size: int) -> Drawing:
    """Fetches that make eight tensors of so many numbers each."""
    return draw(_LISTS, us=100, D=NEXT, T=Ev("aten::lift_fresh", dims=[[size]]))


_IN_TIME = draw(
    """
    step   [1                 ][2                 ]
    cpu    [F       ][B      ][D][F      ][B      ]
    """,
    us=1000,
    D=Ev(NEXT_WORKERS.name, "user_annotation", fill=0.1),
)


def _full(workers_us: float, children: int = 2) -> dict[str, object]:
    """Two cores that are in use all the time; workers_us: by the loader's, of 2e6."""
    vitals = {
        "timed_us": 1e6,
        "loop_queued_us": 4e5,
        "pool_queued_us": 3e5,
        "process_cpu_us": 2e6 - workers_us,
        "children": children,
        "children_cpu_us": workers_us,
    }
    return _loader(sample_us=500.0, collate_us=500.0, num_workers=2) | {"vitals": vitals}


ON_CPU = [
    Example(
        "without a GPU, samples that are lists of numbers: a tensor is made of each position",
        _of_lists(32),
        facts=_loader(sample_us=1.0, collate_us=2000.0),
        saves_us=(1600, 2300),
        says=("default_collate makes 8 tensors, which takes 2 ms",),
    ),
    Example(
        "without a GPU, tensors of other lists than one number of each sample: the samples may be tensors",
        _of_lists(24),
        facts=_loader(sample_us=1.0, collate_us=2000.0),
        saves_us=(1700, 2400),
        says=("32 samples are taken from memory one by one",),
    ),
    Example(
        "without a GPU, lists of numbers that are put together in no time",
        _of_lists(32),
        facts=_loader(sample_us=1.0, collate_us=300.0),
        near_miss=True,
    ),
    Example(
        "without a GPU, an iterator is made anew for each batch and shuffles 300,000 indices for it",
        draw(_ASKED, us=1000, A=Ev("train.py(48): train"), D=NEXT),
        facts=_loader(sample_us=4.0, collate_us=50.0, shuffle=True, batches_per_iterator=1.0, **_ANEW),
        saves_us=(4000, 14000),
        says=("created once a step in train(), from train.py:48", "300,000 samples takes 4 ms"),
    ),
    Example(
        "without a GPU, each epoch has an iterator of its own",
        draw(_ASKED, us=1000, A=Ev("train.py(48): train"), D=NEXT),
        facts=_loader(sample_us=4.0, collate_us=50.0, shuffle=True, batches_per_iterator=62.0, sampler_us=5.0),
        near_miss=True,
    ),
    Example(
        "without a GPU, samples that Python parses one by one could be made once",
        draw(_ON_CPU, us=1000, D=NEXT, S="aten::cat"),
        facts=_loader(sample_us=250.0, collate_us=500.0),
        saves_us=(7500, 8900),
        says=("num_workers=0", "one by one in Python"),
    ),
    Example(
        "the same with a collate function of the script's own, which pads prepared samples all the same",
        draw(_ON_CPU, us=1000, D=NEXT, S="aten::cat"),
        facts=_loader(sample_us=250.0, collate_us=1500.0, collate="pad"),
        saves_us=(7900, 9900),
        says=("num_workers=0", "one by one in Python"),
    ),
    Example(
        "without a GPU, samples that random numbers make anew each time cannot be made once",
        draw(_ON_CPU, us=1000, D=NEXT, S="aten::cat"),
        facts=_loader(sample_us=250.0, collate_us=500.0, random_samples=True),
        saves_us="unknown",
        says=("batches are loaded in the training process itself",),
    ),
    Example(
        "without a GPU, a batch that Python puts together number by number",
        draw(_ON_CPU, us=1000, D=NEXT, S="aten::cat"),
        facts=_loader(sample_us=2.0, collate_us=8000.0, collate="collate", collate_from=["train.py", 5, "collate"]),
        saves_us=(7000, 8500),
        says=("collating its samples",),
    ),
    Example(
        "the same by a package's function, which nobody rewrites: a worker runs it beside the step",
        draw(_ON_CPU, us=1000, D=NEXT, S="aten::cat"),
        facts=_loader(sample_us=2.0, collate_us=8000.0, collate="Collator") | {"settings": {"cores": 2, "threads": 1}},
        saves_us=(0, 10000),
        says=("batches are loaded in the training process itself",),
        fixes=("num_workers=1",),
    ),
    Example(
        "without a GPU, tensors in memory: the batch is as cheap as a loader makes it",
        draw(_ON_CPU, us=40, D=NEXT, S="aten::cat"),
        facts=_loader(sample_us=4.0, collate_us=150.0),
        near_miss=True,
    ),
    Example(
        "without a GPU, 128 rows of NumPy arrays, of each of which a tensor is made before they are stacked",
        draw(_ROWS, us=100, D=NEXT, T=Ev("aten::lift_fresh", times=129), S="aten::stack"),
        facts=_loader(sample_us=1.5, collate_us=330.0, batch_size=128, dataset="Subset", shuffle=True),
        saves_us=(400, 800),
        says=("128 samples are taken from memory one by one", "indexing all of them at once takes 38"),
    ),
    Example(
        "without a GPU, 128 lists of numbers beside a tensor that is stacked: each makes a tensor of the batch",
        draw(_ROWS, us=100, D=NEXT, T=Ev("aten::lift_fresh", times=25), S="aten::stack"),
        facts=_loader(sample_us=1.5, collate_us=330.0, batch_size=128, dataset="Subset", shuffle=True),
        near_miss=True,
    ),
    Example(
        "without a GPU, 256 rows of tensors in memory that are taken one by one and stacked again",
        draw(_ON_CPU, us=100, D=NEXT, S="aten::stack"),
        facts=_loader(sample_us=2.0, collate_us=200.0, batch_size=256, dataset="TensorDataset", shuffle=True),
        saves_us=(600, 950),
        says=("256 samples are taken from memory one by one", "indexing all of them at once"),
    ),
    Example(
        "without a GPU, rows of tensors that are a batch before the step has seen the tenth part of its time",
        draw(_ON_CPU, us=100, D=NEXT, S="aten::stack"),
        facts=_loader(sample_us=2.0, collate_us=80.0, dataset="TensorDataset", shuffle=True),
        near_miss=True,
    ),
    Example(
        "without a GPU, eight workers hand over what the loop would make in a tenth of the time",
        draw(_ON_CPU, us=100, D=NEXT_WORKERS, S="aten::cat"),
        facts=_loader(sample_us=2.0, collate_us=40.0, num_workers=8),
        saves_us=(850, 960),
        says=("passing it between processes",),
    ),
    Example(
        "without a GPU, one worker that is ahead: what it hands over takes no longer than making it",
        draw(_ON_CPU, us=100, D=NEXT_WORKERS, S="aten::cat"),
        facts=_loader(sample_us=20.0, collate_us=200.0, num_workers=1),
        near_miss=True,
    ),
    Example(
        "without a GPU, a data set of whole batches that one worker has ready; taking them is all that is waited for",
        draw(
            """
            step   [1                                 ][2                                 ]
            cpu    [D ][F               ][B         ]  [D ][F               ][B         ]
            """,
            us=100,
            D=NEXT_WORKERS,
        ),
        facts=_loader(sample_us=40.0, collate_us=5.0, num_workers=1, batch_size=None, dataset_size=150),
        near_miss=True,
    ),
    Example(
        "without a GPU, new workers every ten steps",
        draw(_ON_CPU, us=100, D=NEXT_WORKERS, S="aten::cat"),
        facts=_loader(sample_us=10.0, collate_us=40.0, num_workers=2, dataset_size=320)
        | {"steps": {"unprofiled_us": ([1e4] + [2e3] * 9) * 4}},
        saves_us=(550, 950),
        says=("Every 10 steps",),
    ),
    Example(
        "without a GPU, a loader made anew every ten steps: what its fork leaves to copy lies in all parts of a step",
        draw(_ON_CPU.replace("[D       ]", "[D]       "), us=100, D=NEXT_WORKERS, S="aten::cat"),
        facts=_loader(sample_us=10.0, collate_us=40.0, num_workers=2, dataset_size=320)
        | {
            "steps": {
                "unprofiled_us": ([1e4] + [2e3] * 9) * 4,
                "unprofiled_parts_us": {
                    "fetch": ([1e3] + [100.0] * 9) * 4,
                    "backward": ([2.5e3] + [900.0] * 9) * 4,
                    "optimizer": ([600.0] + [200.0] * 9) * 4,
                    "rest": ([5.9e3] + [800.0] * 9) * 4,
                },
            }
        },
        saves_us=(550, 950),
        says=("Every 10 steps",),
    ),
    Example(
        "without a GPU, workers are ahead for most of the time; the window held the end of an epoch",
        draw(_ON_CPU, us=100, D=NEXT_WORKERS, S="aten::cat"),
        facts=_loader(sample_us=10.0, collate_us=80.0, num_workers=2, persistent_workers=True)
        | {"steps": {"unprofiled_us": [2e3] * 40, "unprofiled_parts_us": {"fetch": [450.0] * 40}}},
        near_miss=True,
    ),
    Example(
        "without a GPU, an epoch opens with a step that saves pictures, and its fetch is soon over",
        draw(_ON_CPU.replace("[D       ]", "[D]       "), us=100, D=NEXT_WORKERS, S="aten::cat"),
        facts=_loader(sample_us=10.0, collate_us=40.0, num_workers=2, dataset_size=320)
        | {
            "steps": {
                "unprofiled_us": ([1e4] + [2e3] * 9) * 4,
                "unprofiled_parts_us": {
                    "fetch": ([1e3] + [100.0] * 9) * 4,
                    "backward": [900.0] * 40,
                    "optimizer": [200.0] * 40,
                    "rest": ([7.9e3] + [800.0] * 9) * 4,
                },
            }
        },
        near_miss=True,
    ),
    Example(
        "without a GPU, a sampler that draws index by index, while samples are cheap",
        draw(_ON_CPU, us=1000, D=NEXT, S="aten::cat"),
        facts=_loader(sample_us=4.0, collate_us=50.0, sampler_us=8000.0, sampler_median_us=8000.0, **_OWN),
        saves_us=(0, 8500),
        says=("Drawing the indices of the next batch takes 8 ms", "Balanced draws them one index at a time"),
    ),
    Example(
        "without a GPU, a sampler that holds up the loop where workers read the samples",
        draw(_ON_CPU, us=1000, D=NEXT_WORKERS, S="aten::cat"),
        facts=_loader(
            num_workers=2, sample_us=4.0, collate_us=50.0, sampler_us=8000.0, sampler_median_us=7900.0, **_OWN
        ),
        saves_us=(0, 8500),
        says=("even with 2 workers",),
    ),
    Example(
        "without a GPU, weights of millions of samples are looked through as an epoch of ten steps begins",
        draw(_ON_CPU, us=1000, D=NEXT, S="aten::cat"),
        facts=_loader(
            sample_us=4.0, collate_us=50.0, sampler="WeightedRandomSampler", sampler_us=4000.0, sampler_median_us=9.0
        )
        | {"steps": {"unprofiled_us": ([5e4] + [2e4] * 9) * 4}},
        saves_us=(0, 4000),
        says=("WeightedRandomSampler draws them at the start of an epoch",),
    ),
    Example(
        "without a GPU, a sampler of the script's own that costs little beside the step",
        draw(_ON_CPU, us=1000, D=NEXT, S="aten::cat"),
        facts=_loader(sample_us=4.0, collate_us=50.0, sampler_us=60.0, sampler_median_us=55.0, **_OWN),
        near_miss=True,
    ),
    Example(
        "without a GPU, two workers take the cores from the training: cheaper samples give them back",
        draw(_ON_CPU, us=1000, D=NEXT_WORKERS, S="aten::cat"),
        facts=_loader(sample_us=500.0, collate_us=500.0, num_workers=2)
        | {"vitals": {"timed_us": 1e6, "loop_queued_us": 3e5}},
        saves_us=(0, 16000),
        says=("2 workers load them too slowly",),
    ),
    Example(
        "without a GPU, workers that are in time because they take half of all cores",
        _IN_TIME,
        facts=_full(900e3),
        saves_us=(0, 14_000),
        says=("use 45 % of all CPU time", "without a core for 40 % of each step"),
        fixes=("Make samples cheaper",),
    ),
    Example("without a GPU, workers that take a fifth of all cores", _IN_TIME, facts=_full(400e3), near_miss=True),
    Example(
        "without a GPU, cores that are taken by other processes of the script",
        _IN_TIME,
        facts=_full(900e3, children=6),
        near_miss=True,
    ),
]

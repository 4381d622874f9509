"""Examples of `thread-oversubscription`."""

from __future__ import annotations

from advisor.api import NEXT_WORKERS, Ev, Example, draw

_STEPS = "step [1        ][2        ]\ncpu  [F  ][B  ] [F  ][B  ]"
_LONG = Ev("aten::mm", dims=[[256, 1024], [1024, 1024]], dtypes=["float", "float"])
_SHORT = Ev("aten::mul", times=40)
_UNEVEN = [2000.0, 2100.0, 2200.0, 2900.0, 3000.0, 3000.0, 3100.0, 3200.0, 4800.0, 6000.0]
_EVEN = [2200.0, 2190.0, 2210.0, 2200.0, 2205.0, 2195.0, 2200.0, 2210.0, 2190.0, 2200.0]
_WITH_A_TAIL = [*_EVEN, 60000.0]
_TWO_CORES = {"cores": 2, "threads": 2}


def _facts(settings: dict[str, int], workers: int, unprofiled_us: list[float]) -> dict[str, object]:
    return {"settings": settings, "loaders": [{"num_workers": workers}], "steps": {"unprofiled_us": unprofiled_us}}


_BUSY = {"num_workers": 2, "batch_size": 32, "sample_us": 60.0, "collate_us": 50.0}


def _vitals(loop: float, queued: float, children: float) -> dict[str, float]:
    """Shares of the time: CPU time of the loop's thread, waits of each thread for a core, CPU time of workers."""
    return {
        "timed_us": 100_000.0,
        "loop_cpu_us": loop * 100_000,
        "loop_queued_us": queued * 100_000,
        "pool_queued_us": queued * 100_000,
        "children": 2,
        "children_cpu_us": children * 100_000,
    }


OF_THREADS = [
    Example(
        "two threads and two busy workers on two cores, whose steps take twice as long at times",
        draw(_STEPS, us=250, F=_SHORT, B=_SHORT),
        facts={**_facts(_TWO_CORES, 2, _UNEVEN), "loaders": [_BUSY], "vitals": _vitals(0.6, 0.35, 0.6)},
        saves_us=(1100, 1800),
        says=("2 threads and 2 loader workers share 2 cores",),
    ),
    Example(
        "ops that are split and hardly wait: with one thread they take as long as both together do now",
        draw(_STEPS, us=250, F=_LONG, B=_LONG),
        facts={**_facts(_TWO_CORES, 2, _UNEVEN), "loaders": [_BUSY], "vitals": _vitals(0.85, 0.1, 0.2)},
        near_miss=True,
    ),
    Example(
        "the same crowd, but the steps are even",
        draw(_STEPS, us=250),
        facts={**_facts(_TWO_CORES, 2, _EVEN), "loaders": [_BUSY], "vitals": _vitals(0.95, 0.02, 0.6)},
        near_miss=True,
    ),
    Example(
        "uneven steps, and workers that hand over tensors which are in memory already",
        draw(_STEPS, us=250),
        facts={
            **_facts(_TWO_CORES, 2, _UNEVEN),
            "loaders": [{"num_workers": 2, "batch_size": 32, "sample_us": 2.0, "collate_us": 50.0}],
            "vitals": _vitals(0.6, 0.35, 0.0) | {"children": 0},
        },
        near_miss=True,
    ),
    Example(
        "uneven steps, and spawned workers whose processes hardly run: what a sample takes them is not known",
        draw(_STEPS, us=250),
        facts={
            **_facts(_TWO_CORES, 2, _UNEVEN),
            "loaders": [{"num_workers": 2, "batch_size": 32}],
            "vitals": _vitals(0.6, 0.35, 0.02),
        },
        near_miss=True,
    ),
    Example(
        "steps that differ by less than could be told from chance after the change",
        draw(_STEPS, us=250),
        facts={**_facts(_TWO_CORES, 2, _WITH_A_TAIL), "loaders": [_BUSY], "vitals": _vitals(0.93, 0.02, 0.5)},
        near_miss=True,
    ),
    Example(
        "uneven steps of a loop that waits for its one worker, which has a core: it sets the pace",
        draw("step [1        ][2        ]\ncpu  [D  ][F ][B] [D  ][F ][B]", us=250, D=NEXT_WORKERS),
        facts={
            **_facts(_TWO_CORES, 2, _UNEVEN),
            "loaders": [{"num_workers": 1, "batch_size": 8, "sample_us": 400.0, "collate_us": 50.0}],
            "vitals": _vitals(0.4, 0.2, 0.99),
        },
        near_miss=True,
    ),
    Example(
        "uneven steps beside a GPU: the loop's ops only launch",
        draw("step  [1        ][2        ]\ncpu   [F  ][B  ] [F  ][B  ]\ngpu 7  [K  ][K  ] [K  ][K ]", us=25),
        facts=_facts(_TWO_CORES, 2, _UNEVEN),
        near_miss=True,
    ),
    Example(
        "uneven steps, but cores enough: something else is the cause",
        draw(_STEPS, us=250),
        facts=_facts({"cores": 16, "threads": 8}, 2, _UNEVEN),
        near_miss=True,
    ),
    Example(
        "eight threads on two cores, without a worker and with even steps",
        draw(_STEPS, us=250, F=_LONG),
        facts=_facts({"cores": 2, "threads": 8}, 0, _EVEN),
        saves_us=(360, 1760),
        says=("8 threads share 2 cores",),
    ),
    Example("one thread already", draw(_STEPS, us=250), facts=_facts({"cores": 2, "threads": 1}, 2, _UNEVEN)),
    Example(
        "a bare trace knows neither cores nor threads",
        draw("step  [1        ][2        ]\ncpu   [F  ][B  ] [F  ][B  ]\ngpu 7  [K  ][K  ] [K  ][K ]", us=250),
        skipped="not captured by `advisor run`",
    ),
]

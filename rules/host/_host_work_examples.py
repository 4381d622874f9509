"""Examples of `host-work`, with the steps and facts that they are drawn with."""

from __future__ import annotations

from typing import Any

from advisor.api import FORWARD, Drawing, Ev, Example, draw

STEPS = """
    step   [1                     ][2                     ]
    cpu    [F   ][P      ][B      ][F   ][P      ][B      ]
    """
SOME = """
    step   [1      ][2                 ][3      ][4      ][5                 ][6      ][7      ]
    cpu    [F ][B  ][F ][P        ][B  ][F ][B  ][F ][B  ][F ][P        ][B  ][F ][B  ][F ][B  ]
    """
ONE = """
    step   [1      ][2                 ][3      ][4      ][5      ][6      ][7      ]
    cpu    [F ][B  ][F ][P        ][B  ][F ][B  ][F ][B  ][F ][B  ][F ][B  ][F ][B  ]
    """
EACH = """
    step   [1                     ][2                     ][3                     ]
    cpu    [F   ][P      ][B      ][F   ][P      ][B      ][F   ][P      ][B      ]
    """
HELD_UP = """
    step   [1                     ][2                     ][3                     ]
    cpu    [P      ][F   ][B      ][F   ][P      ][B      ][F   ][B      ][P      ]
    """
BESIDE = {
    "timed_steps": 20,
    "timed_us": 1e6,
    "loop_cpu_us": 650_000.0,
    "loop_queued_us": 340_000.0,
    "threads": [{"name": "Thread-1", "cpu_us": 3e5, "file": "train.py", "line": 12, "function": "produce"}],
}
ASLEEP = {
    "timed_steps": 100,
    "timed_us": 1e6,
    "loop_cpu_us": 615_000.0,
    "loop_queued_us": 5_000.0,
    "process_cpu_us": 1e6,
    "threads": [],
}
SOME_US = {"unprofiled_us": [900.0, 900.0, 2000.0, 900.0] * 5}


def asks(children_us: float) -> dict[str, Any]:
    """A run whose loop sends messages at line 31, and whose eight processes work so long in 100 steps."""
    here = {"file": "train.py", "package": "multiprocessing", "hits": 40, "stretches": 40}
    samples = [{"kind": "step", "line": 31, **here}, {"kind": "start", "line": 9, **here}]
    vitals = {"timed_steps": 100, "timed_us": 240_000.0, "children": 8, "children_cpu_us": children_us}
    return {"run": {"samples": samples}, "vitals": vitals}


def memory(length: int, **changes: object) -> dict[str, Any]:
    """A replay memory that line 31 draws from."""
    known = {"file": "train.py", "line": 31, "function": "sample", "name": "self.memory", "kind": "deque"}
    made = {"made": {"file": "train.py", "line": 12}, "operation": "draw", "often": 64.0}
    return {"containers": [known | made | {"length": length} | changes]}


# A loop of Python between forward and backward pass, without frames, and the lines of one step of it: a library's line
# holds the loop, or the script's own line runs between two others.
_BETWEEN = draw(
    """
    step   [1                     ][2                     ]
    cpu    [F   ]              [B ][F   ]              [B ]
    """,
    us=100,
)


def _lines(lanes: str) -> Drawing:
    """One recorded step; H: line 31, which calls the loop, L, M, N: lines of a loop in a function."""
    words = {"H": (31, "<module>"), "L": (11, "train"), "M": (12, "train"), "N": (13, "train")}
    rows: dict[str, Any] = {
        word: Ev(f"advisor:line|train.py|{line}|{function}", "user_annotation")
        for word, (line, function) in words.items()
        if f"[{word} " in lanes
    }
    return draw(lanes, us=100, **rows)


_FITS = {"run": {"samples": [{"kind": "step", "file": "train.py", "line": 31, "package": "skorch", "hits": 40}]}}

OF_HOST_WORK = [
    Example(
        "the loop of a library, which the script calls at one line",
        _BETWEEN,
        facts=_FITS,
        lines=_lines(
            """
            step   [1                     ]
            cpu    [H                     ]
            cpu    [F   ]              [B ]
            """
        ),
        saves_us=(0, 1500),
        says=("train.py:31, in `skorch`, which runs the loop",),
        fixes=("library's loop",),
    ),
    Example(
        "the same Python at a line of the script's own loop, in a function that a line calls",
        _BETWEEN,
        facts=_FITS,
        lines=_lines(
            """
            step   [1                     ]
            cpu    [H                     ]
            cpu    [L   ][M           ][N ]
            cpu    [F   ]              [B ]
            """
        ),
        saves_us=(900, 1600),
        says=("train.py:12",),
        fixes=("Use tensor ops",),
        near_miss=True,
    ),
    Example(
        "a replay memory that is a long deque",
        draw(STEPS, us=100, P=Ev("train.py(31): sample")),
        facts=memory(400_000, read_us=11.0),
        saves_us=(680, 1000),
        says=("train.py:31 draws entries from the deque `self.memory` of 400,000, made at train.py:12",),
        fixes=("used as a ring",),
    ),
    Example(
        "a search of a list",
        draw(STEPS, us=100, P=Ev("train.py(31): sample")),
        facts=memory(50_000, kind="list", operation="search", often=1.0),
        saves_us=(240, 1000),
        says=("searches the list `self.memory`",),
        fixes=("Search a set",),
    ),
    Example(
        "a short deque, of which the draws take little of the line",
        draw(STEPS, us=100, P=Ev("train.py(31): sample")),
        facts=memory(2_000),
        saves_us=(620, 1000),
        fixes=("Use tensor ops",),
        near_miss=True,
    ),
    Example(
        "a loop over the samples in the middle of the step",
        draw(STEPS, us=100, P=Ev("train.py(31): accuracy")),
        saves_us=(620, 1000),
        says=("`accuracy`", "train.py:31"),
    ),
    Example(
        "the same where the collector stopped other steps than these for long",
        draw(STEPS, us=100, P=Ev("train.py(31): accuracy")),
        facts={"steps": {"unprofiled_us": [2400.0] * 100}, "gc_pauses_us": [80_000.0] * 3},
        saves_us=(620, 1000),
        says=("`accuracy`",),
    ),
    Example(
        "a function that `np.vectorize` calls for each element",
        draw(STEPS, us=100, P=Ev("train.py(31): accuracy")),
        facts={"settings": {"set_at": {"vectorize accuracy": {"file": "train.py", "line": 9}}}},
        saves_us=(620, 1000),
        says=("`np.vectorize` calls `accuracy` once for each element",),
    ),
    Example(
        "a line that calls the collector, whose pauses are another rule's",
        draw(STEPS, us=100, P=Ev("train.py(31): on_step_end")),
        facts={"settings": {"set_at": {"gc.collect": {"file": "train.py", "line": 31}}}},
        near_miss=True,
    ),
    Example(
        "Python at the same place of each step, on a machine where the loop waited for a core",
        draw(EACH, us=100, P=Ev("train.py(31): accuracy")),
        facts={"vitals": {"window_waited": 0.4}},
        saves_us=(620, 1000),
        says=("`accuracy`",),
    ),
    Example(
        "pauses that the loop waited for a core, in each step at another place",
        draw(HELD_UP, us=100, P=Ev("train.py(31): accuracy")),
        facts={"vitals": {"window_waited": 0.4}},
        near_miss=True,
    ),
    Example(
        "the same where a thread of the script's had the core that the loop was ready for",
        draw(STEPS, us=100, P=Ev("train.py(31): accuracy")),
        facts={"steps": {"unprofiled_us": [2400.0] * 100}, "vitals": BESIDE},
        near_miss=True,
    ),
    Example(
        "a loop that sleeps until a thread of the script's has the batch",
        draw(STEPS, us=100, P=Ev("train.py(31): batches")),
        facts={"steps": {"unprofiled_us": [2400.0] * 100}, "vitals": BESIDE | {"loop_queued_us": 100_000.0}},
        saves_us=(620, 1000),
        says=("`batches`",),
    ),
    Example(
        "a sleep of the script's own",
        draw(STEPS, us=100, P=Ev("train.py(31): pause")),
        facts={"steps": {"unprofiled_us": [2400.0] * 100}, "vitals": ASLEEP},
        saves_us=(780, 1000),
        says=("`pause`", "sleeps or waits for 38 % of its time"),
        fixes=("Leave out the sleep",),
    ),
    Example(
        "the same time in Python that runs",
        draw(STEPS, us=100, P=Ev("train.py(31): pause")),
        facts={"steps": {"unprofiled_us": [2400.0] * 100}, "vitals": ASLEEP | {"loop_cpu_us": 990_000.0}},
        saves_us=(620, 1000),
        fixes=("Use tensor ops",),
        near_miss=True,
    ),
    Example(
        "messages to processes that do little",
        draw(STEPS, us=100, P=Ev("train.py(31): ask")),
        facts=asks(20_000.0),
        saves_us=(600, 1000),
        says=("in messages to other processes", "8 of them use 200 µs"),
    ),
    Example(
        "messages to processes that do as much as the loop waits",
        draw(STEPS, us=100, P=Ev("train.py(31): ask")),
        facts=asks(400_000.0),
        saves_us=(0, 1000),
        says=("8 of them use 4 ms",),
    ),
    Example("one call of a library in a small step", draw(STEPS, us=10, P=Ev("train.py(31): cut")), near_miss=True),
    Example(
        "a step that ran more lines than are recorded: the rest of its Python is the place's that it began with",
        draw(
            """
            step   [1                     ][2                     ]
            cpu    [F   ][P  ]     [B      ][F   ][P  ]     [B      ]
            """,
            us=100,
            P=Ev("train.py(31): accuracy"),
        ),
        facts={"files": [{"path": "lines.json", "role": "lines", "cut": True}]},
        saves_us=(650, 1150),
        says=("`accuracy`",),
    ),
    Example(
        "Python that nothing names",
        draw(
            """
            step   [1                     ][2                     ]
            cpu    [F   ]         [B      ][F   ]         [B      ]
            """,
            us=100,
        ),
        saves_us=(0, 1000),
        says=("advisor run",),
    ),
    Example(
        "one step of five in which somebody else had the core",
        draw(
            """
            step   [1      ][2      ][3                              ][4      ][5      ]
            cpu    [F ][B  ][F ][B  ][F ][P                     ][B  ][F ][B  ][F ][B  ]
            """,
            us=100,
            P=Ev("train.py(31): accuracy"),
        ),
        near_miss=True,
    ),
    Example(
        "two steps of seven that write a checkpoint",
        draw(SOME, us=100, P=Ev("train.py(31): save")),
        facts={"steps": SOME_US},
        saves_us=(130, 300),
        says=("in a few of the steps",),
    ),
    Example(
        "the same where others had the core in those steps, as the system counted without the profiler",
        draw(SOME, us=100, P=Ev("train.py(31): save")),
        facts={"steps": SOME_US, "vitals": {"loop_queued_us": 5500.0, "timed_steps": 20}},
        near_miss=True,
    ),
    Example(
        "one step of seven, as in all steps that were timed: an agent that plays before it learns",
        draw(ONE, us=100, P=Ev("train.py(31): play")),
        facts={"steps": {"unprofiled_us": [900.0, 900.0, 2000.0, 900.0, 900.0, 900.0, 900.0] * 5}},
        saves_us=(90, 160),
        says=("in a few of the steps (one in 7)", "train.py:31"),
    ),
    Example(
        "one step of seven, as in none that was timed",
        draw(ONE, us=100, P=Ev("train.py(31): play")),
        facts={"steps": {"unprofiled_us": [900.0] * 35}},
        near_miss=True,
    ),
    Example(
        "the same function beside a GPU that it keeps from nothing",
        draw(
            """
            step   [1                     ][2                     ]
            cpu    [F   ][P      ][B      ][F   ][P      ][B      ]
            gpu 7   [K                   ][K      ][K           ][K]
            """,
            us=100,
            P=Ev("train.py(31): accuracy"),
        ),
        near_miss=True,
    ),
    Example(
        "the 15 µs between the ops of a deep model, half of the step in all",
        draw(
            """
            step   [1                             ][2                             ]
            cpu    [F                   ][B       ][F                   ][B       ]
            """,
            us=20,
            F=Ev(FORWARD.name, times=20, fill=0.25),
        ),
        near_miss=True,
    ),
    Example("ops side by side", draw("step [1        ][2        ]\ncpu  [F  ][B   ][F  ][B   ]", us=1000)),
]

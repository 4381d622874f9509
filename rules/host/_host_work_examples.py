"""Steps and facts that the examples of `host-work` are drawn with."""

from __future__ import annotations

from typing import Any

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

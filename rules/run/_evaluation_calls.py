"""Examples of runs whose evaluation is a loop without a DataLoader."""

from __future__ import annotations

from typing import Any


def facts_of_calls(
    evaluation_s: float,
    *,
    recorded: int = 0,
    backward: bool = False,
    size: tuple[int, ...] = (32, 64),
    apart: bool = True,
) -> dict[str, Any]:
    """A run of 600 steps in 60 s and ten epochs, whose evaluation calls the model in a loop of its own.

    recorded, size: of its 100 samples those that saw a graph; of what the model is given there, (32, 64) in training.
    backward: the evaluation runs backward passes, too.
    """
    sample = {"file": "train.py", "function": "main", "hits": 300}
    step = {"kind": "step", **sample, "line": 80, "block": 80, "marks": ["forward"], "stretches": 300}
    evaluates = {"kind": "long", **sample, "line": 88, "block": 88, "stretches": 10, "call": ["train.py", 44, "check"]}
    samples = [step, {**evaluates, "marks": ["forward", "eval_mode", "also_trained"]}]
    if backward:
        samples.append({**evaluates, "marks": ["backward"], "hits": 100})
    call = {"file": "train.py", "line": 44, "function": "check"}
    return {
        "loaders": [],
        "run": {
            "before_us": 5e6,
            "spent_us": {"start": 2e6, "step": 60e6, "long": evaluation_s * 1e6, "end": 0.0},
            "count": {"start": 1, "step": 600, "long": 10, "end": 1},
            "epochs": 10,
            "samples": samples,
            "passes": [
                {"place": {**call, "line": 80, "function": "main"}, "hits": 300, "inside": 200, "sizes": [[32, 64]]},
                {
                    "place": call,
                    "evaluates": True,
                    "hits": 100,
                    "inside": 70,
                    "recorded": recorded,
                    "sizes": [list(size)],
                    "loop": {**call, "line": 43},
                    "apart": apart,
                },
            ],
        },
    }

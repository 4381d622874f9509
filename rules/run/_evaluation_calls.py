"""Examples of runs whose evaluation is a loop without a DataLoader."""

from __future__ import annotations

from typing import Any

from ..shared._run_examples import run_of, sample


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
    sampled = [sample("step", 80, 300, "forward")]
    called = ["train.py", 44, "check"]
    sampled.append(sample("long", 88, 10, "forward", "eval_mode", "also_trained", call=called))
    if backward:
        sampled.append(sample("long", 88, 10, "backward", hits=100, call=called))
    call = {"file": "train.py", "line": 44, "function": "check"}
    trains = {"place": {**call, "line": 80, "function": "main"}, "hits": 300, "inside": 200, "sizes": [[32, 64]]}
    evaluates = {
        "place": call,
        "evaluates": True,
        "hits": 100,
        "inside": 70,
        "recorded": recorded,
        "sizes": [[*size]],
        "loop": {**call, "line": 43},
        "apart": apart,
    }
    kinds = {"step": (60.0, 600), "long": (evaluation_s, 10), "end": (0.0, 1)}
    return {"loaders": []} | run_of(kinds, *sampled, epochs=10, passes=[trains, evaluates])

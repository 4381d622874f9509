"""DataLoaders that evaluation reads, and examples of runs that have some."""

from __future__ import annotations

from typing import Any

from advisor.api import Loader, RankRecord, Source

# Of the loop, for evaluation: below a tenth of the run, half of it is within the noise between runs.
MIN_SHARE = 0.1


def place_of(loader: Loader) -> Source | None:
    """The line that makes a loader."""
    return Source(loader.file, loader.line, loader.function) if loader.line else None


def trained_batch(record: RankRecord) -> int | None:
    """Samples in a batch of the loader that is trained on; None where several are, or it does not say."""
    return record.loaders[0].batch_size if len(record.loaders) == 1 else None


def run_facts(evaluation_s: float, evaluation: dict[str, Any], ranks: int = 1) -> dict[str, Any]:
    """A run of 600 steps in 60 s and ten epochs, left for evaluation after each; with its loaders."""
    sample = {"file": "train.py", "function": "main", "hits": 300}
    step = {"kind": "step", **sample, "line": 80, "block": 80, "marks": ["forward"], "stretches": 300}
    marks = ["forward", "untrained"]
    after = {"kind": "between", **sample, "line": 88, "block": 88, "marks": marks, "stretches": 10}
    return {
        "world_size": ranks,
        "loaders": [{"batch_size": 32, "sampler": "RandomSampler"}],
        "evaluation_loaders": [{"batch_size": 32, "file": "train.py", "line": 60, "function": "main", **evaluation}],
        "run": {
            "before_us": 5e6,
            "spent_us": {"start": 2e6, "step": 60e6, "between": evaluation_s * 1e6, "end": 0.0},
            "count": {"start": 1, "step": 600, "between": 10, "end": 1},
            "epochs": 10,
            "samples": [step, after],
        },
    }

"""DataLoaders that evaluation reads, and examples of runs that have some."""

from __future__ import annotations

from typing import Any

from advisor.api import Fix, Loader, RankRecord, Source

from ..shared._run_examples import TRAINS, run_of, sample

# Of the loop, for evaluation: below a tenth of the run, half of it is within the noise between runs.
MIN_SHARE = 0.1
# Samples of evaluation that all lie in what takes less than half of its time: by chance once in 32 times.
SEEN = 5
KEPT_LOADERS = Fix(
    "Keep the loaders from epoch to epoch, unless their data changes",
    "exact",
    "trainer = Trainer(reload_dataloaders_every_n_epochs=1)",
    "trainer = Trainer()",
)


def place_of(loader: Loader) -> Source | None:
    """The line that makes a loader."""
    return Source(loader.file, loader.line, loader.function) if loader.line else None


def trained_batch(record: RankRecord) -> int | None:
    """Samples in a batch of the loader that is trained on; None where several are, or it does not say."""
    return record.loaders[0].batch_size if len(record.loaders) == 1 else None


def run_facts(evaluation_s: float, evaluation: dict[str, Any], ranks: int = 1) -> dict[str, Any]:
    """A run of 600 steps in 60 s and ten epochs, left for evaluation after each; with its loaders."""
    after = sample("between", 88, 10, "forward", "untrained")
    return run_of({"step": (60.0, 600), "between": (evaluation_s, 10)}, TRAINS, after, epochs=10) | {
        "world_size": ranks,
        "loaders": [{"batch_size": 32, "sampler": "RandomSampler"}],
        "evaluation_loaders": [{"batch_size": 32, "file": "train.py", "line": 60, "function": "main", **evaluation}],
    }

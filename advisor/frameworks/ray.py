"""Ray Train: `with profile():` around the loop in the function that each worker runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray.train

from advisor.library.profile import Profile


@contextmanager
def profile(*, rank: int = 0, output: str | os.PathLike[str] | None = None, **options: Any) -> Iterator[Profile | None]:
    """Profiles the block in the worker of that world rank; in all others nothing happens, and the value is None.

    output: a folder that outlives the worker, on storage that you can reach. options: those of `advisor.profile`.
    """
    if ray.train.get_context().get_world_rank() != rank:
        yield None
        return
    with Profile(output=output, **options) as made:
        yield made

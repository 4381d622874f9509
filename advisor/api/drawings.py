"""Traces drawn as text, for the examples of rules."""

from __future__ import annotations

from advisor.drawing.events import (
    ALLREDUCE,
    BACKWARD,
    D2H_PAGEABLE,
    ELEMENTWISE,
    FORWARD,
    GEMM,
    GLOO,
    H2D_PAGEABLE,
    H2D_PINNED,
    ITEM,
    NCCL,
    NEXT,
    NEXT_WORKERS,
    OPTIMIZER,
    SYNC,
    TO,
    TO_BLOCKING,
    ZERO_GRAD,
    Ev,
)
from advisor.drawing.timeline import Drawing, draw

__all__ = [
    "ALLREDUCE",
    "BACKWARD",
    "D2H_PAGEABLE",
    "ELEMENTWISE",
    "FORWARD",
    "GEMM",
    "GLOO",
    "H2D_PAGEABLE",
    "H2D_PINNED",
    "ITEM",
    "NCCL",
    "NEXT",
    "NEXT_WORKERS",
    "OPTIMIZER",
    "SYNC",
    "TO",
    "TO_BLOCKING",
    "ZERO_GRAD",
    "Drawing",
    "Ev",
    "draw",
]

"""What is asked of the sequential test; apart from it, because a comparison of stored reports needs no numpy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SequentialDesign:
    """What is asked of the test. margin, tolerance: shares of the base's step time; looks: numbers of pairs."""

    margin: float = 0.02
    tolerance: float = 0.05
    alpha: float = 0.01
    power: float = 0.95
    looks: tuple[int, ...] = (6, 10, 16)

    @property
    def alpha_per_look(self) -> float:
        """An equal part of alpha for each look: the sum bounds the chance of any false alarm."""
        return self.alpha / len(self.looks)

"""The extension in `native/`: what its functions take and give, `advisor.trace.read.native_columns` uses."""

from typing import final

import numpy as np
import numpy.typing as npt

LAYOUT: int
EVENT_FIELDS: tuple[str, ...]
MEMORY_FIELDS: tuple[str, ...]
TABLES: tuple[str, ...]

@final
class Scanner:
    def __init__(self, seed: int) -> None: ...
    def read(
        self,
        text: bytes,
        events: npt.NDArray[np.int64],
        memory: npt.NDArray[np.int64],
        labels: npt.NDArray[np.int64],
        /,
    ) -> tuple[int, int, int, int] | None: ...
    def number(self, name: str, text: bytes, places: npt.NDArray[np.int64], /) -> list[bytes]: ...
    def fresh(self) -> tuple[list[bytes], ...]: ...

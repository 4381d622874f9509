"""What training keeps on each device, in bytes, from what capture recorded: the arithmetic behind ways to split it."""

from __future__ import annotations

from msgspec import Struct

from advisor.api import RankRecord, data_size

# Numbers that an optimizer keeps for each parameter, as its documentation says: (fewest, most). SGD keeps one with
# momentum and none without, RMSprop up to three.
_STATE = {
    "Adam": (2, 3),
    "AdamW": (2, 3),
    "NAdam": (2, 2),
    "RAdam": (2, 2),
    "Adamax": (2, 2),
    "Adagrad": (1, 1),
    "RMSprop": (1, 3),
    "SGD": (0, 1),
}


class Needs(Struct, frozen=True):
    """Bytes on one device where every device holds the whole model.

    parameters, gradients (of the same format), optimizer (fewest);  name: of the optimizer
    peak, capacity   the most that was allocated, and what the device has
    """

    parameters: float
    gradients: float
    optimizer: float
    name: str
    peak: float
    capacity: float

    @property
    def state(self) -> float:
        """All that stays from step to step."""
        return self.parameters + self.gradients + self.optimizer

    def said(self) -> str:
        """The sum in words."""
        return (
            f"parameters {data_size(self.parameters)} + gradients {data_size(self.gradients)} + {self.name}'s state "
            f"{data_size(self.optimizer)}"
        )


def needs(record: RankRecord) -> Needs | None:
    """The needs of this rank; None where a part of them is not known, or the model is split already."""
    model, memory = record.model or {}, record.memory or {}
    capacity = next((one.get("memory_bytes") for one in record.devices if one.get("memory_bytes")), None)
    held, peak = model.get("parameter_bytes"), memory.get("peak_allocated_bytes")
    if not held or not peak or not capacity or len(record.optimizers) != 1:
        return None
    known = _STATE.get(record.optimizers[0].name)
    if known is None:
        return None
    return Needs(
        float(held), float(held), float(known[0] * held), record.optimizers[0].name, float(peak), float(capacity)
    )


def largest_unit(record: RankRecord) -> float | None:
    """Bytes of the parameters of the largest module that lies directly in a list of layers, or is a leaf's parent.

    What a sharded model gathers at once; None where modules were not recorded.
    """
    model = record.model or {}
    modules, held, numbers = model.get("modules") or [], model.get("parameter_bytes"), model.get("parameters")
    if not modules or not held or not numbers:
        return None
    blocks = [one for one in modules if one.get("path", "").rpartition(".")[2].isdigit()]
    most = max((one.get("parameters", 0) for one in blocks or modules[1:]), default=0)
    return float(most) * held / numbers if most else None

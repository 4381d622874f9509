"""Environment variables of the training process that decide speed."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from advisor.capture.record import RankRecord
from advisor.computed import Missing

_OFF = ("", "0", "false", "off", "no", "n")


class Environment(Struct, frozen=True):
    """Variables of the rank's process during its window: only those on an allow-list.

    A name that is not in `values` was not set.
    """

    values: Mapping[str, str]

    def get(self, name: str) -> str:
        """The value without blanks around it; empty where the variable is not set."""
        return self.values.get(name, "").strip()

    def on(self, name: str) -> bool:
        """Whether a switch is set to anything but off."""
        return self.get(name).lower() not in _OFF

    @classmethod
    def compute(cls, record: RankRecord) -> Environment:
        """The variables. Missing if they were not captured by `advisor run`."""
        if record.environment is None:
            raise Missing("the environment was not recorded; capture the script with `advisor run`")
        return cls(record.environment)

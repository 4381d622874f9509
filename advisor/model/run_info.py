"""What was run, and how far the input can be trusted."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field


class RunInfo(Struct, frozen=True):
    """What was run, where and with what; secrets masked, no host or user names."""

    command: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    reference_rank: int = 0
    world_size: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)  # file of the script -> SHA-256 of its bytes, when profiled


class Health(Struct, frozen=True):
    """One statement about how far the input can be trusted."""

    id: str
    status: Literal["ok", "note", "warning", "error"]
    message: str

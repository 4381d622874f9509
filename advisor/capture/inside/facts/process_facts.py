"""What this process says of itself in its window: its settings, its model, and losses that it keeps."""

from __future__ import annotations

import os
from collections import deque
from functools import cache
from typing import Any

import torch

from ..collector import Collector
from ..steps.tracker import Tracker
from . import probe, stack_traces
from .live_objects import live_objects
from .model import kept_graphs, model_facts
from .model.checkpoint_lines import saves
from .sent_buffers import SentBuffers, wrappers
from .source import secrets
from .source.line_digests import digests
from .source.made_classes import made_classes
from .source.text_blocks import blocks


class Facts:
    """Facts with the keys of `record.RankRecord`, as `known`: nothing until `look`, which reads them once."""

    def __init__(self, collector: Collector, tracker: Tracker) -> None:
        self.collector = collector
        self.tracker = tracker
        self.known: dict[str, Any] = {}
        self.initial = probe.switches()
        # The number of autograd's next node at each boundary.
        self.marks: deque[int | None] = deque(maxlen=kept_graphs.MOST_MARKS)
        self.kept_before: dict[str, Any] | None = None
        self.sent = SentBuffers()
        self.paths: dict[int, str] | None = None  # of the model's modules, until the step with lines begins

    def boundary(self) -> None:
        """A boundary between two iterations of the loop."""
        self.marks.append(kept_graphs.number())

    def window_opens(self) -> None:
        """What the next look may come too late for: an epoch's end drops what it kept, the script's end its modules."""
        probe.attempt(self._read_text)
        self.kept_before = self._kept(probe.attempt(model_facts.scalars))
        if probe.attempt(torch.distributed.is_initialized):
            probe.attempt(lambda: self.sent.window_opens(live_objects()))

    def _read_text(self) -> None:
        self.collector.setting_lines.text.read()

    def forget(self) -> None:
        """What was read belongs to no window that is kept: the next look reads it anew."""
        self.known.clear()

    def look(self) -> str:
        """Reads the settings as they stand in the window, once; what is to be noted of them."""
        if "settings" in self.known:
            return ""
        alive = probe.attempt(model_facts.find)
        self.paths = self._paths(alive) if alive else None
        self.known.update(probe.look(self.initial, self.collector, alive))
        if alive and self.known["settings"].get("ddp"):
            self.known["settings"]["ddp"]["buffers"] = self._sent(alive)
        self.known["settings"]["stack_trace"] = probe.attempt(stack_traces.cost)
        self.known["environment"] = secrets.allowed(os.environ)
        self.known["saves"] = probe.attempt(saves)
        self.known["blocks"] = probe.attempt(lambda: blocks(self.collector.setting_lines.text)) or {}
        self.known["classes"] = probe.attempt(lambda: made_classes(self.collector.setting_lines.text)) or {}
        self.known["file_digests"] = probe.attempt(lambda: self.collector.setting_lines.text.digests) or {}
        self.known["line_digests"] = probe.attempt(lambda: digests(self.collector.setting_lines.text)) or {}
        found = [self.kept_before, self._kept(alive.scalars if alive else None)]
        # What an epoch dropped may live in a cycle until Python collects it: more steps, in no variable. A look that
        # found the variable goes first.
        self.known["kept_graphs"] = max(
            filter(None, found), key=lambda one: ("name" in one, int(one["steps"])), default=None
        )
        return probe.hidden_optimizer(self.collector, alive) if self.tracker.backwards else ""

    def _kept(self, alive: list[Any] | None) -> dict[str, Any] | None:
        """Losses that the script keeps with their graphs, here and now."""
        if alive is None:
            return None
        found: dict[str, Any] | None = probe.attempt(lambda: kept_graphs.kept(alive, self.marks, self.tracker.count))
        return found

    def _sent(self, alive: model_facts.Live) -> list[dict[str, Any]] | None:
        """Buffers that are copied between ranks; None where they cannot be read."""
        registered = self.collector.setting_lines.text.registered
        found: list[dict[str, Any]] | None = probe.attempt(
            lambda: self.sent.record(wrappers(alive.modules), cache(registered))
        )
        return found

    def device(self) -> str:
        """Type of the device that the model lies on, as far as is known."""
        return probe.device_of(probe.parameters_of(self.collector.alive_optimizers())) or ""

    def modules(self) -> dict[int, str]:
        """Paths of the model's modules, for the step that records lines; it follows the look at the window's end."""
        paths, self.paths = self.paths, None
        return self._paths(model_facts.find()) if paths is None else paths

    def _paths(self, alive: model_facts.Live) -> dict[int, str]:
        optimizers = self.collector.alive_optimizers() or alive.optimizers
        return model_facts.paths(alive.modules, probe.parameters_of(optimizers))

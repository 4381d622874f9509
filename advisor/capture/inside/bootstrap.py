"""What runs in the user's process from its first moment: decides what the process is, and waits for torch.

Standard library only. torch is touched only after the script itself has imported it.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .process_role import role_of


def start(setting: str) -> None:
    """Reads the capture settings (JSON) and, where this process may be a rank, waits for its `import torch`."""
    settings = json.loads(setting)
    if settings.get("undo"):
        from .guards import journal

        journal.install(settings["undo"], settings["folder"])
    role = role_of(settings, list(sys.orig_argv), sys.argv[0] if sys.argv else "")
    if role == "server":
        _await_forks(settings)
    elif role != "never":
        sys.meta_path.insert(0, TorchWatcher(settings, role))


def _await_forks(settings: dict[str, Any]) -> None:
    """Arms what this fork server forks: such a process starts in the middle of it, and no sitecustomize runs there.

    What such a process forks in turn has its hooks already, as after any fork.
    """
    watcher = TorchWatcher(settings, "server")
    sys.meta_path.insert(0, watcher)

    def forked() -> None:
        if watcher.role == "server":
            watcher.role = "distributed"
            if watcher not in sys.meta_path:  # the server has loaded torch ahead (set_forkserver_preload)
                _arm(settings, watcher.role)

    os.register_at_fork(after_in_child=forked)


class TorchWatcher:
    """A finder that stands first on sys.meta_path until torch is imported, then arms capture and is gone."""

    def __init__(self, settings: dict[str, Any], role: str) -> None:
        self.settings = settings
        self.role = role

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec that the other finders have for torch, its loader followed by `_arm`; None for all other modules."""
        if name != "torch":
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self)  # type: ignore[assignment]
                return spec
        return None


class _Loader:
    """The loader of torch, with one call after it."""

    def __init__(self, inner: Any, watcher: TorchWatcher) -> None:
        self._inner = inner
        self._watcher = watcher

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the real loader does."""
        spec.loader = self._inner
        module: ModuleType | None = self._inner.create_module(spec)
        spec.loader = self  # type: ignore[assignment]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Runs torch's own code, takes every trace of this loader away, then arms capture."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        module.__loader__ = self._inner
        self._inner.exec_module(module)
        if self._watcher in sys.meta_path:
            sys.meta_path.remove(self._watcher)
        _arm(self._watcher.settings, self._watcher.role)


def _arm(settings: dict[str, Any], role: str) -> None:
    """Installs the hooks; whatever goes wrong, the script goes on."""
    try:
        if "turns" in settings:
            from . import gate_loop

            gate_loop.arm(settings, role)
            return
        from . import session

        if role != "server":  # it only saves its children the import
            session.arm(settings, role)
    except Exception as failure:
        _leave_note(settings, failure)


def _leave_note(settings: dict[str, Any], failure: Exception) -> None:
    """Tells `advisor run` that capture could not be armed here."""
    try:
        path = os.path.join(settings["folder"], f"failed-{os.getpid()}.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"{type(failure).__name__}: {failure}")
    except OSError:
        pass

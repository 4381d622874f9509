"""Where the script made loaders, optimizers and models and set switches: the user's innermost line in each call.

torch's own functions read names of `torch._C` while they run: the constructors of optimizers and modules one that
counts their use, functions that set a switch its setter. The module gets those names as properties: who reads one is
noted, and gets what it would have got, so that no frame of ours is on the stack while it runs. Loaders and anomaly
detection set attributes of their own. A choice that changes nothing, such as the precision that is the default, leaves
no other trace.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType, ModuleType
from typing import Any

import torch
import torch.backends.cuda
from torch.autograd import anomaly_mode
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from ...guards import frameworks
from ...guards.hooks import Attribute, Undo, place
from ...guards.interrupts import let_through
from ...guards.user_code import file_of, foreign_folders, package_of
from .script_text import ScriptText

Place = dict[str, Any]  # file, line, function, made_by, made_in: the keys of `record.CodePlace`

# Setters of `torch._C` -> the setting, as run.json names it.
_SETTERS = {
    "_set_float32_matmul_precision": "matmul_precision",
    "_set_cublas_allow_tf32": "matmul_precision",
    "_set_fp32_precision_setter": "matmul_precision",
    "_set_deterministic_algorithms": "deterministic",
    "_set_default_dtype": "default_dtype",
    "_set_sdp_use_flash": "flash_sdp",
}
_PRECISION = "matmul_precision"
_COUNTS_USE = "_log_api_usage_once"
# Loaders and optimizers that are remembered: a script may make a loader in each epoch.
_MOST_MADE = 64
# Modules that are made outside of other modules: a function may make each layer, and the model was begun before them.
_MOST_MODULES = 1024


class SettingLines:
    """The lines, as far as they are known."""

    def __init__(self) -> None:
        self.foreign = foreign_folders()
        self.text = ScriptText(self.foreign)
        self.precision_chosen = False  # the script set the precision of fp32 matrix products
        self.settings: dict[str, Place] = {}  # the last call of each
        self.made: deque[tuple[weakref.ref[Any], Place]] = deque(
            maxlen=_MOST_MADE
        )  # a weak reference to it, where it was made
        self.tables: deque[tuple[weakref.ref[Any], Place]] = deque(maxlen=_MOST_MADE)  # embeddings, likewise
        self.modules: deque[tuple[weakref.ref[Any], Place]] = deque(maxlen=_MOST_MODULES)  # not of other modules

    def chosen(self, setting: str, frame: FrameType) -> None:
        """A function that sets it runs in this frame."""
        self.precision_chosen |= setting == _PRECISION
        if place := self._by_whom(frame):
            self.settings[setting] = place

    def constructed(self, frame: FrameType) -> None:
        """The constructor of an optimizer or of a module runs in this frame."""
        owner = frame.f_locals.get("self")
        if isinstance(owner, Optimizer):
            self._made(owner, frame)
            return
        makes = _around(frame, owner)
        whole = makes is not None and not isinstance(makes.f_locals.get("self"), torch.nn.Module)
        if whole and (place := self._place(makes)):
            self.modules.append((weakref.ref(owner), place))
        if isinstance(owner, torch.nn.Embedding | torch.nn.EmbeddingBag):
            if place := self._place(makes):
                self.tables.append((weakref.ref(owner), place))
        elif type(owner).__name__ == "DistributedDataParallel" and (place := self._by_whom(makes)):
            self.settings["ddp"] = place

    def loads(self, loader: Any, frame: FrameType) -> None:
        """A loader is being made, or changed, in a frame around this one."""
        if all(reference() is not loader for reference, _ in self.made):
            self._made(loader, frame)

    def _made(self, owner: Any, frame: FrameType) -> None:
        place = self._by_whom(_around(frame, owner))
        if isinstance(owner, DataLoader) and place.get("made_by"):
            place = self._of_dataset(owner) or place
        if place:
            self.made.append((weakref.ref(owner), place))

    def _of_dataset(self, loader: DataLoader[Any]) -> Place:
        """Where the loader was made that a framework makes again, with a sampler of its own; empty where it is new."""
        known = [(one, place) for ref, place in self.made if isinstance(one := ref(), DataLoader)]
        places = [place for one, place in known if one.dataset is loader.dataset]
        # Of loaders for training and for an evaluation with the same data, it is not known which one this is.
        return places[0] if places and all(place == places[0] for place in places) else {}

    def of_loader(self, iterator: Any) -> Place:
        """Where the loader of an iterator was made; empty where that is not known."""
        given = iterator._dataset, iterator._index_sampler
        loaders = ((one, place) for ref, place in reversed(self.made) if isinstance(one := ref(), DataLoader))
        return next((p for one, p in loaders if one.dataset is given[0] and one._index_sampler is given[1]), {})

    def of_optimizer(self, optimizer: Any) -> Place:
        """Where an optimizer was made; empty where that is not known."""
        return next((place for reference, place in reversed(self.made) if reference() is optimizer), {})

    def of_loop(self, made: dict[str, Any]) -> Place:
        """Where an optimizer is asked to update its parameters one by one, by the text; empty if not known."""
        return self.text.switched_off("foreach", _made(made))

    def record(self, held: Mapping[str, Sequence[str]], model: Any = None) -> dict[str, Place]:
        """The lines of settings, with those that only the script's text tells.

        held: tensors of modules by the setting that they make: "double" (those in float64 say more than another mention
        of that format), "window".  model: the module that is trained.
        """
        registered = {
            setting: next(filter(None, (self.text.registered(name.rpartition(".")[2]) for name in names)), None)
            for setting, names in held.items()
        }
        tables = {
            f"embedding {one.num_embeddings}x{one.embedding_dim}": place
            for reference, place in reversed(self.tables)
            if (one := reference()) is not None
        }
        live = reversed(self.modules) if model is not None else ()
        made = next((place for reference, place in live if reference() is model), None)
        found = {name: place for name, place in {**registered, "model": made}.items() if place}
        lines = {**self.text.settings(), **found, **tables, **self.settings}
        return lines | self.text.values(lines)

    def of_number(self, loader: dict[str, Any], argument: str) -> Place:
        """Where a number that a loader was made with stands in the text; empty where that is not known."""
        if loader.get(argument) is None or not loader.get("file"):
            return {}
        return self.text.number(loader[argument], argument, _made(loader))

    def of_workers(self, loader: dict[str, Any]) -> Place:
        """Where the call that made a loader is given the number of its workers, if not at its first line."""
        return self.text.passed_at("num_workers", _made(loader))

    def of_kept_workers(self, loader: dict[str, Any]) -> Place:
        """Where a loader is told not to keep its workers, by the text, if not at the call's first line."""
        return self.text.switched_off("persistent_workers", _made(loader))

    def of_dataset(self, loader: dict[str, Any]) -> Place:
        """Where the dataset of a loader is made, by the text; empty where that is not known."""
        return self.text.dataset(_made(loader))

    def of_sampler(self, loader: dict[str, Any]) -> Place:
        """Where the sampler of a loader is made, by the text; empty where that is not known."""
        return self.text.called(loader.get("sampler") or "")

    def of_options(self, loader: dict[str, Any]) -> Place:
        """Where the arguments that a loader's call unpacks are put together, by the text; empty if not known."""
        return self.text.options(_made(loader))

    def as_optioned(self, made: dict[str, Any]) -> Place:
        """Where the options of what Transformers' Trainer made are given; empty where that is not one line."""
        return self.text.training_arguments() if made.get("made_by") == "transformers" else {}

    def _place(self, frame: FrameType | None) -> Place:
        user = self._users(frame)
        if user is None:
            return {}
        return {
            "file": file_of(user.f_code, self.foreign),
            "line": user.f_lineno or user.f_code.co_firstlineno,
            "function": user.f_code.co_name,
        }

    def _by_whom(self, frame: FrameType | None) -> Place:
        """The user's line, with the framework that runs in this frame on its account, and the package of this frame."""
        place, framework = self._place(frame), frameworks.of_frames(frame, self._users(frame))
        package = package_of(frame.f_code.co_filename) if frame is not None and place else ""
        if package and package != "torch" and frame is not self._users(frame):
            place = place | {"made_in": package}
        return place | {"made_by": framework} if place and framework else place

    def _users(self, frame: FrameType | None) -> FrameType | None:
        """The innermost frame of the user's code."""
        while frame is not None and not file_of(frame.f_code, self.foreign):
            frame = frame.f_back
        return frame


def watch(lines: SettingLines) -> tuple[Undo, list[Undo]]:
    """Has the lines noted from now on: what ends the watch of choices; what ends all else that was placed.

    A loader may be made in each epoch, so that watch goes on while the loop runs.
    """
    made = Attribute("timeout", on_set=lambda loader, _: _quietly(lines.loads, loader, sys._getframe()))
    placed = [place(DataLoader, "timeout", made)]
    for kind in (anomaly_mode.set_detect_anomaly, anomaly_mode.detect_anomaly):
        set_ = Attribute("prev", on_set=lambda *_: _quietly(lines.chosen, "anomaly_detection", sys._getframe()))
        placed.append(place(kind, "prev", set_))
    return _watch_choices(lines), placed


def _watch_choices(lines: SettingLines) -> Undo:
    """Notes who reads certain names of `torch._C`; what ends that."""
    native: Any = torch._C
    if type(native) is not ModuleType:
        return lambda: None
    setters = _setters()
    constructors = {kind.__init__.__code__ for kind in (Optimizer, torch.nn.Module)}

    def setter(setting: str) -> Callable[[FrameType], None]:
        def read(frame: FrameType) -> None:
            # torch.compile reads all names of this module, too: only torch's own setters count.
            if frame.f_code in setters:
                lines.chosen(setting, frame)

        return read

    def counted(frame: FrameType) -> None:
        if frame.f_code in constructors:
            lines.constructed(frame)

    listeners = {name: setter(setting) for name, setting in _SETTERS.items()} | {_COUNTS_USE: counted}
    names = {name: _told(name, told) for name, told in listeners.items() if hasattr(native, name)}
    native.__class__ = type("module", (ModuleType,), {**names, "__module__": "builtins"})

    def end() -> None:
        native.__class__ = ModuleType

    return end


def _quietly(call: Callable[..., None], *words: Any) -> None:
    """Calls it; a line that is not known is no reason to disturb the script."""
    try:
        call(*words)
    except Exception as failure:
        let_through(failure)


def _told(name: str, told: Callable[[FrameType], None]) -> Any:
    """A property of a module that tells in which frame it is read."""

    def read(module: Any) -> Any:
        _quietly(told, sys._getframe(1))
        return vars(module)[name]

    def write(module: Any, value: Any) -> None:
        vars(module)[name] = value

    return property(read, write)


def _around(frame: FrameType | None, owner: Any) -> FrameType | None:
    """The frame that makes it: constructors of its class and of its bases call each other."""
    makes = frame
    while frame is not None:
        if frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is owner:
            makes = frame.f_back
        frame = frame.f_back
    return makes


def _setters() -> set[CodeType]:
    """Code of the functions through which a script sets them."""
    inner = getattr(torch.backends, "_set_fp32_precision_setter", None)
    found = [
        torch.use_deterministic_algorithms,
        torch.set_deterministic_debug_mode,
        torch.set_default_dtype,
        torch.set_float32_matmul_precision,
        torch.backends.cuda.enable_flash_sdp,
        torch.backends.cuda.cuBLASModule.__setattr__,
        inner("generic", "all") if inner is not None else None,
    ]
    return {one.__code__ for one in found if hasattr(one, "__code__")}


def _made(loader: dict[str, Any]) -> Place:
    """The line in the call that made a loader; empty where that is not known."""
    return {key: loader[key] for key in ("file", "line", "function")} if loader.get("file") else {}

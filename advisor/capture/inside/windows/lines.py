"""The user's executing line as ranges of the lines trace: `advisor:line|<file>|<line>|<function>`.

A trace function opens a range at each line of the user's code on the loop's thread and closes it at the next one, so
that a gap without any torch op still has its line. `advisor:call|<module>.<function>` names what a line of the user
called outside the user's code; `advisor:module|<path>|<class>` is the forward of a module of the model; metrics
(`metrics.py`) have ranges of their own. Works only inside one step; a debugger or a coverage tool that already traces
is left alone.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any
from urllib.parse import quote

import torch

from ..facts.data.containers import Containers
from ..facts.source.script_text import ScriptText
from ..guards.user_code import absolute, foreign_folders, is_foreign, relative
from .inlined import comprehensions
from .labels import Labels
from .lookups import look
from .masks import Masks
from .metrics import is_metric, name_of

# A step that enters more lines than this (a pixel loop) is cut off: its trace would be of no use and very large.
_MOST_LINES = 50_000
# Turns of a loop on one line are told as well, and write nothing: so many take a fifth of a second.
_MOST_EVENTS = 1_000_000

_enter = torch.autograd._record_function_with_args_enter
_exit = torch.autograd._record_function_with_args_exit


class LineRecorder:
    """Ranges for the lines of the calling thread between start() and stop().

    modules: id -> path in the model.  text: of the script, read already or not
    """

    def __init__(self, modules: dict[int, str], text: ScriptText | None = None) -> None:
        self.modules = {key: _plain(path) for key, path in modules.items()}
        self.within: list[tuple[FrameType, Any]] = []  # forwards of modules and metrics that are running
        self.foreign = foreign_folders()
        self.names: dict[CodeType, str | None] = {}
        self.turning: dict[CodeType, dict[int, str]] = {}
        self.on_one_line: dict[CodeType, bool] = {}
        self.open: list[tuple[FrameType, int, tuple[Any, ...]]] = []
        self.hooked: list[FrameType] = []
        self.events = 0  # that were told, those of lines that were left for others among them
        self.entered = 0  # lines that a range was opened for
        self.on = False
        self.files: set[str] = set()
        self.cut = False
        self.lookups: list[dict[str, int]] = []  # batches of indices that embeddings looked up
        self.masks = Masks()
        self.labels = Labels()
        self.containers = Containers(text or ScriptText(self.foreign))

    def start(self) -> None:
        """Begins to record. Raises RuntimeError when another tool traces this thread."""
        if sys.gettrace() is not None:
            raise RuntimeError("another tool (a debugger, coverage) traces this thread")
        frames = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if self._name(frame) is not None:
                frames.append(frame)
            frame = frame.f_back
        self.on = True
        for one in reversed(frames):
            self._push(one)
            one.f_trace = self._local
            self.hooked.append(one)
        sys.settrace(self._global)

    def stop(self) -> None:
        """Ends every open range and takes the trace function away."""
        if not self.on:
            return
        self.on = False
        sys.settrace(None)
        for frame in self.hooked:
            frame.f_trace = None
        self.hooked.clear()
        while self.open:
            _close(self.open.pop()[2])
        while self.within:
            _exit(self.within.pop()[1])

    def _name(self, frame: FrameType) -> str | None:
        """The constant part of a range's name: file and function; None for code that is not the user's."""
        try:
            return self.names[frame.f_code]
        except KeyError:
            name = self.names[frame.f_code] = self._fresh_name(frame)
            return name

    def _fresh_name(self, frame: FrameType) -> str | None:
        file = frame.f_code.co_filename
        if file.startswith("<") and not _typed_in(frame):
            return None
        path = absolute(file) if not file.startswith("<") else file
        if is_foreign(path, self.foreign):
            return None
        shown = relative(path)
        self.files.add(shown)
        return shown

    def _push(self, frame: FrameType) -> None:
        code, line = frame.f_code, frame.f_lineno
        turning = self.turning.get(code)
        if turning is None:
            turning = self.turning[code] = comprehensions(code)
        functions = (code.co_name, turning[line]) if line in turning else (code.co_name,)
        if (self.names[code], line) in self.containers.uses:
            self.containers.look(self.names[code] or "", line, frame)
        at = f"advisor:line|{self.names[code]}|{line}"
        self.open.append((frame, line, tuple(_enter(f"{at}|{function}") for function in functions)))

    def _pop(self, frame: FrameType) -> None:
        """Ends the ranges of `frame` and of frames above it that ended without our seeing it."""
        if any(one[0] is frame for one in self.open):
            while self.open:
                one, _, handles = self.open.pop()
                _close(handles)
                if one is frame:
                    return

    def _global(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event != "call" or not self.on:
            return None
        called = frame.f_code.co_name
        forward = (called == "forward" and self._enter_module(frame)) or (called == "compute" and self._computes(frame))
        if called == "cross_entropy":
            self.labels.look(frame)
        if self._name(frame) is not None:
            return self._local
        if forward:
            frame.f_trace_lines = False
            return self._forward
        caller = frame.f_back
        if caller is not None and self.open and self.open[-1][0] is caller and self._name(caller) is not None:
            # What a line of the user called outside the user's code, one level deep.
            module = frame.f_globals.get("__name__", "")
            name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
            self.open.append((frame, 0, (_enter(f"advisor:call|{module}.{name}"),)))
            frame.f_trace_lines = False
            return self._call
        return None

    def _enter_module(self, frame: FrameType) -> bool:
        """Opens the range of a module of the model, or of a metric, where this is its forward."""
        module = frame.f_locals.get("self")
        path, kind = self.modules.get(id(module)), _plain(type(module).__name__)
        if path is not None:
            look(module, frame.f_locals, self.lookups)
            self.within.append((frame, _enter(f"advisor:module|{path}|{kind}")))
        if is_metric(module):
            name = _plain(name_of(module, frame.f_back, self._is_users))
            self.within.append((frame, _enter(f"advisor:metric|{name}|{kind}")))
            return True
        return path is not None

    def _is_users(self, frame: FrameType) -> bool:
        return self._name(frame) is not None

    def _computes(self, frame: FrameType) -> bool:
        """Opens the range of a metric's value that is computed, where a metric's forward does that."""
        if not self.within or not any(is_metric(one.f_locals.get("self")) for one, _ in self.within):
            return False
        kind = type(frame.f_locals.get("self")).__name__
        self.within.append((frame, _enter(f"advisor:computes|{_plain(kind)}")))
        return True

    def _leave_module(self, frame: FrameType) -> None:
        while self.within and self.within[-1][0] is frame:
            local = frame.f_locals
            self.masks.look(local.get("self"), local)
            _exit(self.within.pop()[1])

    def _forward(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "return":
            self._leave_module(frame)
            frame.f_trace_lines = True
        return self._forward

    def _call(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "return":
            self._pop(frame)
            frame.f_trace_lines = True
        return self._call

    def _local(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if not self.on:
            return None
        if event == "line":
            self.events += 1
            if self.events > _MOST_EVENTS or self.entered > _MOST_LINES:
                self.cut = True
                self.stop()
                return None
            if self.open and self.open[-1][0] is frame:
                if self.open[-1][1] == frame.f_lineno:
                    return self._local  # a comprehension, a loop on one line: still the same line
                _close(self.open.pop()[2])
            else:
                self._pop(frame)
            self._push(frame)
            self.entered += 1
            if self._is_on_one_line(frame.f_code):
                frame.f_trace_lines = False  # a comprehension: its turns tell nothing
        elif event == "return":
            self._pop(frame)
            self._leave_module(frame)
            frame.f_trace_lines = True
        return self._local

    def _is_on_one_line(self, code: CodeType) -> bool:
        """Whether a function has one line alone."""
        found = self.on_one_line.get(code)
        if found is None:
            lines = {line for _, _, line in code.co_lines() if line is not None}
            found = self.on_one_line[code] = len(lines) == 1
        return found


def _close(handles: tuple[Any, ...]) -> None:
    """Ends the ranges of one line, the innermost first."""
    for handle in reversed(handles):
        _exit(handle)


def _typed_in(frame: FrameType) -> bool:
    """Whether code was given as a string or by standard input; what libraries make up (dataclasses) was not."""
    made = frame.f_globals
    named = frame.f_code.co_filename in ("<string>", "<stdin>")
    return named and made.get("__name__") == "__main__" and "__file__" not in made


def _plain(name: str) -> str:
    """A name of the script's choice in characters that Kineto leaves as they are: all others as in an address, %22."""
    return name if name.isidentifier() and name.isascii() else quote(name, safe="#", errors="backslashreplace")

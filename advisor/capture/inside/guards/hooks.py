"""Where capture listens inside torch: attributes that loops read or set, so that no frame of ours is on the stack.

A wrapped function would stand in the traceback of the user's error. An attribute is read and done: the loader reads
`_profile_name` as `__next__` begins and sets `_num_yielded` when a batch is there; autograd reads `_execution_engine`
as a backward begins; a profiler sets `step_num` in step(). Optimizers have a hook of their own.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any

import torch
import torch.autograd.profiler
import torch.profiler
import torch.utils.data.dataloader as loading

_ABSENT = object()
_AUTOGRAD = os.path.dirname(os.path.abspath(torch.autograd.__file__)) + os.sep
Listener = Callable[[Any, Any], None]
Undo = Callable[[], None]  # takes away what a function placed, where it still is there


class Attribute:
    """An instance attribute that tells a listener when it is read or set; the value stays where it always was."""

    def __init__(self, name: str, on_get: Listener | None = None, on_set: Listener | None = None) -> None:
        self.name = name
        self.on_get = on_get
        self.on_set = on_set

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        try:
            value = owner.__dict__[self.name]
        except (KeyError, AttributeError):
            kind = kind or type(owner)
            of = f"type object '{kind.__name__}'" if owner is None else f"'{kind.__name__}' object"
            raise AttributeError(f"{of} has no attribute '{self.name}'") from None
        if self.on_get is not None:
            self.on_get(owner, value)
        return value

    def __set__(self, owner: Any, value: Any) -> None:
        owner.__dict__[self.name] = value
        if self.on_set is not None:
            self.on_set(owner, value)

    def __delete__(self, owner: Any) -> None:
        del owner.__dict__[self.name]


def place(owner: Any, name: str, value: Any) -> Undo:
    """Sets an attribute of a class or module; the function that restores what was there."""
    before = vars(owner).get(name, _ABSENT)
    setattr(owner, name, value)

    def undo() -> None:
        if vars(owner).get(name) is not value:
            return  # somebody else has replaced it since
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    return undo


def listened() -> bool:
    """Whether a capture listens in this process, be it one that was loaded under another name (`advisor run`)."""
    return hasattr(vars(loading._BaseDataLoaderIter).get("_profile_name"), "on_get")


def watch_loaders(asked: Listener, given: Listener) -> list[Undo]:
    """asked(iterator, _): `__next__` begins. given(iterator, n): n batches were delivered; 0: it is made or reset."""
    kind: Any = loading._BaseDataLoaderIter
    return [
        place(kind, "_profile_name", Attribute("_profile_name", on_get=asked)),
        place(kind, "_num_yielded", Attribute("_num_yielded", on_set=given)),
    ]


def watch_fetchers(begun: Listener, fetched: Listener) -> list[Undo]:
    """begun(fetcher, _): the samples of a batch are about to be read. fetched(fetcher, _): about to be collated."""
    from torch.utils.data._utils import fetch

    kind: Any = fetch._BaseDatasetFetcher
    return [
        place(kind, "auto_collation", Attribute("auto_collation", on_get=begun)),
        place(kind, "collate_fn", Attribute("collate_fn", on_get=fetched)),
    ]


def watch_samplers(asked: Listener, given: Listener) -> list[Undo]:
    """asked(iterator, _): indices of a batch are asked for. given(owner, _): they are there, if some were asked for."""
    kind: Any = loading._BaseDataLoaderIter
    return [
        place(kind, "_index_sampler", Attribute("_index_sampler", on_get=asked)),
        place(kind, "_sampler_iter", Attribute("_sampler_iter", on_get=asked, on_set=given)),
        # What is read next: in the loop's own process that which reads the samples, with workers who is the next of
        # them.
        place(kind, "_dataset_fetcher", Attribute("_dataset_fetcher", on_get=given)),
        place(kind, "_worker_queue_idx_cycle", Attribute("_worker_queue_idx_cycle", on_get=given)),
    ]


def watch_backward(begun: Callable[[], bool | None], ends_ns: list[int] | None = None) -> list[Undo]:
    """begun(): a backward pass (or autograd.grad) begins. ends_ns: when it has ended, if begun() returned True.

    The caller holds the engine that it reads for as long as the pass takes, be it that an exception ends it: one of our
    own, made for this pass, is deleted at its end. All engines are doors to the one that torch has.

    What is called there has to be C from end to end. A signal that arrives during the pass waits for the next Python to
    run, and were that a function of ours, Python would drop what the handler raises: exceptions in `__del__` reach
    nobody, and Ctrl-C would be lost.
    """
    meta: Any = type(torch.autograd.Variable)
    engine = [torch.autograd.Variable._execution_engine]
    base: Any = type(engine[0])
    noted = map((ends_ns if ends_ns is not None else []).append, iter(perf_counter_ns, None))
    passing: Any = type("Passing", (base,), {"__slots__": (), "__del__": staticmethod(noted.__next__)})

    def read(_kind: Any) -> Any:
        return passing() if begun() and type(engine[0]) is base else engine[0]

    def write(_kind: Any, value: Any) -> None:
        engine[0] = value

    return [place(meta, "_execution_engine", property(read, write))]


def inside_backward(beginning: bool = False) -> bool:
    """This thread is inside autograd's engine, which puts the profiler back to what it was when it leaves.

    beginning: one pass is about to begin, and does not count.
    """
    frame: FrameType | None = sys._getframe(1)
    passes, within = 0, False
    while frame is not None:
        code = frame.f_code
        # One pass has one or two of these on the stack, the one called by the other.
        mine = code.co_name in ("_engine_run_backward", "backward", "grad") and code.co_filename.startswith(_AUTOGRAD)
        passes += mine and not within
        within = mine
        frame = frame.f_back
    return passes > beginning


def watch_optimizers(stepped: Callable[[Any], None], began: Callable[[], None] = lambda: None) -> list[Undo]:
    """began(), stepped(optimizer): a step begins, has returned. Not called inside code that torch.compile traces."""
    from torch.optim import optimizer as module

    # torch before 2.3 has it under its private name alone. torch.compile knows both, and takes them for true.
    compiling = getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling

    def before(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if compiling():
            return
        began()

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if compiling():
            return
        stepped(optimizer)

    if hasattr(module, "register_optimizer_step_post_hook"):
        return [
            module.register_optimizer_step_pre_hook(before).remove,
            module.register_optimizer_step_post_hook(after).remove,
        ]
    return []


def watch_profilers(stepped: Listener, began: Callable[[], None], ended: Callable[[], None]) -> list[Undo]:
    """stepped(profiler, n): step_num was set. began/ended: a profiler session is prepared or starts, has stopped."""
    kind: Any = torch.profiler.profile
    module: Any = torch.autograd.profiler
    placed = [place(kind, "step_num", Attribute("step_num", on_set=stepped))]
    for name in ("_prepare_profiler", "_enable_profiler"):
        if hasattr(module, name):
            placed.append(place(module, name, _before(getattr(module, name), began)))
    if hasattr(module, "_disable_profiler"):
        placed.append(place(module, "_disable_profiler", _after(module._disable_profiler, ended)))
    return placed


class Ranges:
    """The ranges (record_function) that were opened since `watch` and are still open, the innermost last."""

    def __init__(self) -> None:
        self.open: list[Any] = []

    def watch(self) -> None:
        """Listens to ranges from here on."""
        kind: Any = torch.autograd.profiler.record_function
        kind.record = Attribute("record", on_set=self._opened)
        kind.run_callbacks_on_exit = Attribute("run_callbacks_on_exit", on_get=self._closing)

    def end(self) -> None:
        """Ends those that are open, and listens no more: a session that stops inside an open range may crash.

        Each ends again where the script ends it; the second time does nothing.
        """
        kind: Any = torch.autograd.profiler.record_function
        for name in ("record", "run_callbacks_on_exit"):
            if name in vars(kind):
                delattr(kind, name)
        while self.open:
            torch.ops.profiler._record_function_exit._RecordFunction(self.open.pop().record)

    def _opened(self, owner: Any, record: Any) -> None:
        if record is not None:
            self.open.append(owner)

    def _closing(self, owner: Any, _value: Any) -> None:
        while any(one is owner for one in self.open):
            if self.open.pop() is owner:
                return


def watch_autocast(entered: Listener) -> list[Undo]:
    """entered(autocast, _): an autocast region is entered (it saves the state that it will restore)."""
    from torch.amp import autocast_mode

    kind: Any = autocast_mode.autocast
    return [place(kind, "prev", Attribute("prev", on_set=entered))]


def watch_warnings(shown: Listener) -> list[Undo]:
    """shown(warning, _): a warning that the filters let pass is about to be shown."""
    kind: Any = warnings.WarningMessage
    return [place(kind, "_category_name", Attribute("_category_name", on_set=shown))]


def watch_groups(joined: Callable[[], None]) -> None:
    """joined(): this process has joined the default process group."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d as module

    kind: Any = type(module._world)
    known = kind.default_pg

    def write(world: Any, value: Any) -> None:
        known.fset(world, value)
        if value is not None:
            joined()

    kind.default_pg = property(known.fget, write)


def in_children(forget: Callable[[], None]) -> list[Undo]:
    """forget() in every process that this one forks."""
    told = [forget]  # Python cannot unregister: what stays behind tells nothing

    def forked() -> None:
        for one in told:
            one()

    os.register_at_fork(after_in_child=forked)
    return [told.clear]


def hide_from_dynamo() -> None:
    """torch.compile leaves our own functions alone where one of them runs inside a region that it traces."""
    skip = _skipper()
    if skip is None:
        return
    package = __name__.rsplit(".", 2)[0]  # above the folder of guards
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{package}.") and module.__file__:
            for code in _codes(vars(module), module.__file__):
                skip(code)


def _skipper() -> Callable[[CodeType], None] | None:
    """What makes dynamo skip a code object and all that it calls; None in a torch without dynamo."""
    module: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if hasattr(module, "set_code_exec_strategy"):
        strategy = module._FrameExecStrategy(module._FrameAction.SKIP, module._FrameAction.SKIP)
        return lambda code: module.set_code_exec_strategy(code, strategy)
    return getattr(module, "skip_code", None)


def _codes(names: dict[str, Any], file: str) -> Iterator[CodeType]:
    """Code objects of the functions, methods and inner functions that a namespace of ours holds."""
    for value in names.values():
        if isinstance(value, type) and value.__module__ == names.get("__name__"):
            yield from _codes({**vars(value), "__name__": ""}, file)
        code = getattr(getattr(value, "__func__", value), "__code__", None)
        if isinstance(code, CodeType) and code.co_filename == file:
            yield from _nested(code)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _before(call: Callable[..., Any], listener: Callable[[], None]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        listener()
        return call(*args, **kwargs)

    return wrapped


def _after(call: Callable[..., Any], listener: Callable[[], None]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        finally:
            listener()

    return wrapped

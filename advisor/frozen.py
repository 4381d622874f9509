"""`@dataclass(frozen=True, slots=True)`, made in a fifth of the time.

The standard library writes and compiles six methods for each class that it makes: half a millisecond, and a command
here makes two hundred classes before it does anything. Of those methods only `__init__` has to be compiled for each
class, and that when its first instance is made: half of the classes get none. What is made here does the same, and
`dataclasses.fields`, `replace` and `asdict`, pickling, matching and msgspec take it as what it is: to a type checker
this is the standard library's decorator itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

_NOT_GIVEN = object()  # stands for a default that a factory makes


def _frozen(cls: type, *, eq: bool) -> Any:
    # Without a docstring the standard library would write one from the signature, which takes longer than all the rest.
    cls.__doc__ = cls.__doc__ or cls.__name__
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    made.__dataclass_params__.frozen = True  # subclasses are asked to be frozen, too
    methods = {"__init__": _init_later(made), "__repr__": _repr, "__setattr__": _refuse, "__delattr__": _refuse}
    methods |= {"__getstate__": _state, "__setstate__": _restore}
    for name, method in (methods | (_comparing(made) if eq else {})).items():
        if name not in vars(cls):
            setattr(made, name, method)
    return made


def _init_later(cls: Any) -> Callable[..., None]:
    """Compiles the method when it is called first, and takes its own place with it."""
    for field in dataclasses.fields(cls):
        if field.kw_only:
            raise TypeError(f"{cls.__qualname__}.{field.name}: such a field needs the standard library's decorator")

    def compiling(self: Any, *values: Any, **named: Any) -> None:
        cls.__init__ = _init(cls)
        cls.__init__(self, *values, **named)

    return compiling


def _init(cls: Any) -> Callable[..., None]:
    """The one method that is compiled: calls by position and by name are checked by Python itself."""
    scope: dict[str, Any] = {"_set": object.__setattr__, "_not_given": _NOT_GIVEN}
    parameters, lines = ["self"], []
    for field in dataclasses.fields(cls):
        name = value = field.name
        default = ""
        if field.default is not dataclasses.MISSING:
            default, scope[f"_default_{name}"] = f"_default_{name}", field.default
        elif field.default_factory is not dataclasses.MISSING:
            default, scope[f"_make_{name}"] = f"_make_{name}()", field.default_factory
        if not field.init:
            value = default
        elif default.endswith("()"):
            parameters.append(f"{name}=_not_given")
            value = f"{default} if {name} is _not_given else {name}"
        else:
            parameters.append(f"{name}={default}" if default else name)
        if value:
            lines.append(f" _set(self, '{name}', {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    exec("\n".join([f"def __init__({', '.join(parameters)}):", *(lines or [" pass"])]), scope)
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _comparing(cls: Any) -> dict[str, Callable[..., Any]]:
    """Equality and hash by the values of the fields, as tuples compare."""
    names = [field.name for field in dataclasses.fields(cls) if field.compare]
    values: Callable[[Any], Any] = lambda self: tuple(getattr(self, name) for name in names)  # noqa: E731
    if len(names) > 1:
        values = attrgetter(*names)  # gives a tuple for two names and more, in a quarter of the time

    def equal(self: object, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return {"__eq__": equal, "__hash__": lambda self: hash(values(self))}


def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(self: object, name: str, *_value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change field '{name}'")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool = False, slots: bool = False, eq: bool = True) -> Callable[[type], type]:
        """The decorator. What is no frozen, slotted class of its own is left to the standard library."""

        def make(cls: type) -> type:
            if frozen and slots and cls.__bases__ == (object,):
                return _frozen(cls, eq=eq)
            return dataclasses.dataclass(frozen=frozen, slots=slots, eq=eq)(cls)

        return make

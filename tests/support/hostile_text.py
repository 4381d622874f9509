"""A hostile text, and values with it in every string that input can reach."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

HOSTILE = (
    "</script></style></title></textarea></svg>--><script>alert(1)</script>"
    "<img src=x onerror=alert(2)><a href='javascript:alert(3)'>x</a>\"' onload=alert(4) x=\""
    "{{ 7*7 }}{% raw %}|`a``b`|\u2028\u2029\x1b[31mred\x1b]0;title\x07\x9b1m\x00\x08\u202eevil\udc80]]>&amp;\r\n"
    "# h @user *b* _i_ [l](http://x) "
)
# These strings are ours, or one of a fixed set: never taken from a trace.
_OURS = {"schema", "unit", "status", "severity", "at_most", "basis", "risk", "precision", "source", "version"}


def poison(value: Any, name: str = "") -> Any:
    """The same with the hostile text in front of every string."""
    if isinstance(value, str):
        return value if name in _OURS else f"{HOSTILE}{value}"
    if isinstance(value, tuple):
        return tuple(poison(item) for item in value)
    if isinstance(value, dict):
        return {poison(key): poison(item) for key, item in value.items()}
    if isinstance(value, Struct):
        return replace(value, **{name: poison(getattr(value, name), name) for name in value.__struct_fields__})
    return value

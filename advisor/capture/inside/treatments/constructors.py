"""Arguments of a constructor, changed as the script calls it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def change(kind: Any, edit: Callable[[Any, dict[str, Any]], None]) -> None:
    """edit(object, arguments) may change the arguments, by their names, with which `kind` is constructed."""
    made = kind.__init__
    signature = inspect.signature(made)

    @functools.wraps(made)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            given = signature.bind(self, *args, **kwargs)
        except TypeError:
            made(self, *args, **kwargs)  # the script's own mistake, in torch's words
            return
        edit(self, given.arguments)
        made(*given.args, **given.kwargs)

    kind.__init__ = init

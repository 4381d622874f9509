"""Comprehensions that the interpreter runs in the frame of the function around them (Python 3.12 and later, PEP 709).

Before, a comprehension was a function of its own, and its turns were told from runs of its line by that. Where one
stands on one line, nothing else tells them: the trace function is called at the line's beginning and cannot tell a turn
of a comprehension from one of a loop.
"""

from __future__ import annotations

import sys
from opcode import opmap
from types import CodeType

# What each turn of a comprehension ends with, and the name that its function had.
_TURNS = {
    opmap[name]: function
    for name, function in (("LIST_APPEND", "<listcomp>"), ("SET_ADD", "<setcomp>"), ("MAP_ADD", "<dictcomp>"))
    if name in opmap
}
# A display ([*a, b]) adds to the collection on top of the stack, at 1; a comprehension has its iterator above it.
_BELOW_ITERATOR = 2
_INLINES = sys.version_info >= (3, 12)
_UNIT = 2  # bytes of an instruction: its number and its argument


def comprehensions(code: CodeType) -> dict[int, str]:
    """Lines of this code on which turns of comprehensions end, with the name that their function would have."""
    if not _INLINES:
        return {}
    raw = code.co_code
    return {
        line: _TURNS[raw[at]]
        for start, stop, line in code.co_lines()
        if line is not None
        for at in range(start, stop, _UNIT)
        if raw[at] in _TURNS and raw[at + 1] >= _BELOW_ITERATOR
    }

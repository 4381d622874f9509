"""Lines of the training loop's text that write a checkpoint: the step whose lines are recorded may hold none.

Read once, from the text of the functions that are running when the window has closed: the innermost loop around the
running line that has such a call, else the loop around that.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from ...guards.user_code import file_of, foreign_folders
from ..source.syntax import Trees

# Names of functions and methods that write the state of a model; torch's, and those of the common frameworks.
_SAVE = ("save", "save_checkpoint", "save_pretrained", "save_model", "save_state", "save_state_dict", "async_save")
_SAVERS = ("torch", "fabric", "accelerator", "trainer", "dcp", "torch.distributed.checkpoint", "")


def saves() -> list[dict[str, Any]]:
    """Places of such calls in the loops that run on this thread, the innermost loop that has any; none found: empty."""
    foreign, trees = foreign_folders(), Trees()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        file = file_of(code, foreign)
        if file:
            lines = _in_loops(trees.of(code.co_filename), frame.f_lineno or 0)
            if lines:
                return [{"file": file, "line": line, "function": code.co_name} for line in lines]
        frame = frame.f_back
    return []


def _in_loops(tree: ast.Module | None, running: int) -> list[int]:
    """Lines of calls that save, of the innermost loop around the running line that has one."""
    nodes = ast.walk(tree) if tree else ()
    loops = [node for node in nodes if isinstance(node, (ast.For, ast.While)) and _around(node, running)]
    loops.sort(key=lambda node: -node.lineno)
    return next((lines for loop in loops if (lines := sorted(set(_calls(loop))))), [])


def _around(node: ast.For | ast.While, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _calls(loop: ast.AST) -> Iterator[int]:
    for node in ast.walk(loop):
        if isinstance(node, ast.Call):
            owner, _, name = ast.unparse(node.func).rpartition(".")
            # Pictures and tables are saved by methods of that name, too.
            plain = name == "save" and owner not in _SAVERS and "state_dict" not in ast.unparse(node)
            if name in _SAVE and not plain:
                yield node.lineno

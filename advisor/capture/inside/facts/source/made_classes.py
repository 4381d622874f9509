"""Classes of the script's files that its text makes one object of, and where: how it is made is what can be changed."""

from __future__ import annotations

import ast
from collections import defaultdict

from .script_text import ScriptText
from .syntax import last_name

# (first and last line of the class, file and line of the only call of it): `record.MadeClass`
Made = tuple[int, int, str, int]


def made_classes(text: ScriptText) -> dict[str, list[Made]]:
    """For each file its classes of which there is one call outside of the class itself; modules are left out.

    A model is made once, too, and where that is says nothing of a line of its forward pass.
    """
    classes: list[tuple[str, ast.ClassDef]] = []
    calls: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for file, node in text.nodes(""):
        if isinstance(node, ast.ClassDef) and not any(last_name(base).endswith("Module") for base in node.bases):
            classes.append((file, node))
        elif isinstance(node, ast.Call):
            calls[last_name(node.func)].add((file, node.lineno))
    found: dict[str, list[Made]] = {}
    for file, one in classes:
        last = one.end_lineno or one.lineno
        others = [at for at in calls.get(one.name, ()) if at[0] != file or not one.lineno <= at[1] <= last]
        if len(others) == 1:
            found.setdefault(file, []).append((one.lineno, last, *others[0]))
    return found

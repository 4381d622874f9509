"""Numbers with a decimal point in rules and analyses: fitted ones are named from the table, thresholds are parameters.

What is neither is listed in the golden file, to be read when it changes: shares that decide what is looked at
(`_MOSTLY`), never what is promised. A number that a saving is computed from belongs in `advisor/constants.toml`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

from advisor import constants

ROOT = Path(__file__).parents[2]
FOLDERS = ("rules", "advisor/analyses", "advisor/replay", "advisor/ranks")
# Nothing, all, half of both ends; powers of ten, which are units.
PLAIN = {0.0, 1.0, 0.5, 2.0} | {10.0**power for power in range(-9, 13)}


def files() -> list[Path]:
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if not path.stem.endswith("_examples")]


def names(node: ast.stmt) -> set[str]:
    """What a statement at the top of a file defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}


def computing(tree: ast.Module) -> list[ast.stmt]:
    """Statements at the top of a file that its rule's `check` uses; all of them where there is no rule."""
    defined = {name: node for node in tree.body for name in names(node)}
    if "check" not in defined:
        return tree.body
    used, waiting = set(), ["check"]
    while waiting:
        name = waiting.pop()
        if name in defined and name not in used:
            used.add(name)
            waiting += [one.id for one in ast.walk(defined[name]) if isinstance(one, ast.Name)]
    return [node for node in tree.body if names(node) & used]


def decimals(tree: ast.Module) -> Iterator[tuple[str, float]]:
    """(name of the constant or function that holds it, number) of each decimal that is no threshold of a check."""
    for top in computing(tree):
        thresholds = {id(one) for node in ast.walk(top) if isinstance(node, ast.arguments) for one in node.kw_defaults}
        for node in ast.walk(top):
            plain = not isinstance(node, ast.Constant) or not isinstance(node.value, float) or node.value in PLAIN
            if not plain and id(node) not in thresholds:
                yield ", ".join(sorted(names(top))), node.value


def test_decimals_are_named_from_the_table_or_thresholds(golden: Callable[[str, str], None]) -> None:
    listed = []
    for path in files():
        for of, number in sorted(set(decimals(ast.parse(path.read_text("utf-8"))))):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            listed.append(f"{module}: {of}: {number:g}\n")
    golden("decimals.txt", "".join(listed))


def test_a_fitted_number_and_a_threshold_are_told_apart() -> None:
    text = """
_SAVED = 0.43
_EVEN = [2190.5]
EXAMPLES = (Example("even", draw(_EVEN), saves_us=1.5),)


def check(a, *, min_share: float = 0.03):
    return 0.7 * _SAVED * a + 1e3
"""
    assert sorted(decimals(ast.parse(text))) == [("_SAVED", 0.43), ("check", 0.7)]
    assert sorted(decimals(ast.parse("_SAVED = 0.43\n_OTHER = 0.7"))) == [("_OTHER", 0.7), ("_SAVED", 0.43)]


def test_every_constant_is_used() -> None:
    """One that no code names says nothing about what is computed."""
    paths = [*(ROOT / "rules").rglob("*.py"), *(ROOT / "advisor").rglob("*.py")]
    text = "\n".join(path.read_text("utf-8") for path in paths)
    named = {one.name for one in constants.every() if f'"{one.name}"' in text}
    # By the name of an optimizer, or of a quantity that a calibration measures.
    built = ("optimizer.", "machine.")
    assert (
        not {one.name for one in constants.every()}
        - named
        - {one.name for one in constants.every() if one.name.startswith(built)}
    )

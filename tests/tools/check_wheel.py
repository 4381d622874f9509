"""Compares a wheel with the tree: `python tests/tools/check_wheel.py dist/*.whl`, in an environment that has it."""

from __future__ import annotations

import sys
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOMES = {"advisor": "advisor", "rules": "advisor/rules", "reports": "advisor/reports"}
SHIPPED = {".py", ".pyi", ".toml", ".html", ".css", ".js", ".md", ".typed"}
BUILT = ("advisor/trace/read/_scan.", "advisor/replay/_walk.")


def expected() -> set[str]:
    """Where each file of the tree must lie in the wheel."""
    return {
        f"{home}/{path.relative_to(ROOT / top).as_posix()}"
        for top, home in HOMES.items()
        for path in (ROOT / top).rglob("*")
        if path.suffix in SHIPPED and "__pycache__" not in path.parts
    } | {f"advisor/samples/{path.name}" for path in (ROOT / "samples").glob("*.py")}


def main(wheel: str) -> int:
    """Prints what is missing or too much; 0 when wheel and tree agree and the entry points load without torch."""
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    built = {name for name in held if name.startswith(BUILT) and not name.endswith(".pyi")}
    held -= built
    missing, extra = expected() - held, held - expected()
    for name in sorted(missing):
        print(f"missing from the wheel: {name}")
    for name in sorted(extra):
        print(f"in the wheel, not in the tree: {name}")
    for group in ("advisor.rules", "advisor.reports"):
        found = entry_points(group=group)
        if not found:
            print(f"no entry points in {group}")
            return 1
        for entry in found:
            entry.load()
    if "torch" in sys.modules:
        print("loading the entry points imported torch")
        return 1
    print(f"{len(held)} files in the wheel, as in the tree; {len(built)} of {len(BUILT)} extensions")
    return 1 if missing or extra else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""Torch Advisor from a checkout that nobody installed: a folder for PYTHONPATH, as pip would have filled it.

A checkout alone has no rules: these are found by entry points, which an installation writes.
"""

from __future__ import annotations

import os
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).parents[3]


def make_importable(folder: Path) -> None:
    """Puts Torch Advisor on the PYTHONPATH of processes that are started from here; the installed one goes first."""
    paths = [str(Path(one).absolute()) for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    if not entry_points(group="advisor.rules"):
        laid_out(folder)
        paths.insert(0, str(folder.absolute()))
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # absolute, as these processes work elsewhere


def laid_out(folder: Path) -> None:
    """Fills the folder with links to the packages and with the metadata that names the entry points."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = declared["project"]
    package = folder / project["scripts"]["advisor"].partition(".")[0]
    metadata = folder / f"torch_advisor-{project['version']}.dist-info"
    for made in (package, metadata):
        made.mkdir(parents=True, exist_ok=True)
    parts = {file.name: file for file in (ROOT / package.name).iterdir()}
    for name, place in declared["tool"]["setuptools"]["package-dir"].items():
        if name.count(".") == 1:
            parts.setdefault(name.rpartition(".")[2], ROOT / place)
    for name, source in parts.items():
        if not (package / name).exists():
            (package / name).symlink_to(source)
    about = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(about, "utf-8")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(groups), "utf-8")

"""Whose code a file is."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from advisor.capture.inside.guards import user_code


@pytest.mark.parametrize(
    ("name", "foreign"),
    [
        ("numpy.layers.conv_GCNConv_propagate", True),  # a package writes a layer's code and loads it
        ("layers.conv", False),  # a folder of the script's own
        ("numpy", False),  # the script's own file of that name
        ("", False),  # no module: what runpy runs
    ],
)
def test_what_a_package_generates_is_not_the_users(
    name: str, foreign: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np

    path = tmp_path / "generated.py"
    monkeypatch.setattr(user_code, "_TEMPORARY", f"{tmp_path}/")
    monkeypatch.setitem(sys.modules, "numpy", np)
    layers = ModuleType("layers")
    layers.__file__ = str(tmp_path / "layers" / "__init__.py")
    monkeypatch.setitem(sys.modules, "layers", layers)
    if name:
        module = ModuleType(name)
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, name, module)
    user_code._is_generated.cache_clear()
    folders = (f"{Path(np.__file__).parents[1]}/",)
    assert user_code.is_foreign(str(path), folders) is foreign

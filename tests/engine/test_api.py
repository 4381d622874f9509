"""advisor.api: every name that it promises is there, and a command pays only for what it uses."""

from __future__ import annotations

import subprocess
import sys

from advisor import api
from advisor.api import comparisons


def test_every_name_is_there() -> None:
    assert len(set(api.__all__)) == len(api.__all__)
    for name in api.__all__:
        assert getattr(api, name) is not None
    assert not hasattr(api, "Nothing")


def test_what_compares_reports_is_imported_when_it_is_asked_for() -> None:
    assert set(comparisons.__all__) <= set(api.__all__)
    code = """
import sys
from advisor.engine import engine, registry
assert registry.load_rules().rules
assert not [name for name in sys.modules if name.startswith("advisor.gate")]
from advisor.api import Comparison
assert Comparison.__module__ == "advisor.gate.comparison.model"
"""
    subprocess.run([sys.executable, "-c", code], check=True)

"""Compiled templates in the user's cache folder: used where they fit, and never in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import reports_fixtures as fixtures

from advisor.engine import registry

# Of a module that is found by its entry point, as in an installation.
HTML = registry.load_reporter("html")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where templates are kept in this test, which begins with none compiled."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    forget()
    return tmp_path / "torch-advisor" / "templates"


def forget() -> None:
    """As in a new process."""
    HTML.__globals__["_environment"].cache_clear()
    HTML.__globals__["jinja2"].clear_caches()


def page() -> str:
    """The page of a process of its own."""
    forget()
    return HTML(fixtures.canonical())


def test_the_page_is_the_same_from_compiled_templates(folder: Path) -> None:
    first = page()
    kept = {one: one.stat().st_mtime_ns for one in folder.iterdir()}
    assert kept
    assert page() == first
    assert {one: one.stat().st_mtime_ns for one in folder.iterdir()} == kept


def test_what_is_damaged_or_of_another_version_is_compiled_again(folder: Path) -> None:
    first = page()
    whole = {one: one.read_bytes() for one in folder.iterdir()}
    for at, one in enumerate(sorted(whole)):
        one.write_bytes((b"", b"no such thing", whole[one][:100])[at % 3])
    assert page() == first
    assert {one: one.read_bytes() for one in folder.iterdir()} == whole


def test_a_place_that_cannot_be_written_is_no_error(folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_text("a file where the folder should be")
    assert page().startswith("<!doctype html>")
    assert folder.is_file()


@pytest.mark.skipif(os.name == "nt", reason="other permissions")
def test_a_folder_that_others_can_write_to_is_not_used(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert page().startswith("<!doctype html>")
    assert not list(folder.iterdir())

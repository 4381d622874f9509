"""Holds what tests write against the published schemas: reports, records and reduced forms, results and comparisons.

The latter two are taken from what prints them, in the tests' own process. A file counts by the name that the product
gives it, where it says of itself that it is one: what a test makes up for its purpose has another name, or lacks that.
Where one of them is not valid, the session ends with an error.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.agents import schemas
from advisor.engine import reduced_form
from advisor.errors import InputError
from advisor.gate.comparison import texts
from advisor.gate.formats import as_json

NAMES = {"report.json": "report", "run.json": "run"}


def plain(value: Any) -> Any:
    """Values of msgpack as JSON has them: columns in base 64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def documents(path: Path) -> Iterator[tuple[str, Any]]:
    """What a file holds, each with the name of its schema; nothing where it is none of ours."""
    if path.suffix == ".rank":
        try:
            pieces = reduced_form.unpacked_pieces(path.read_bytes(), str(path))
        except InputError:
            return
        yield from zip(("reduced", "reduced-detail"), map(plain, pieces), strict=True)
        return
    kind = NAMES[path.name]
    try:
        document = json.loads(path.read_bytes())
    except ValueError:
        return
    if isinstance(document, dict) and document.get("schema") == f"torch-advisor/{kind}":
        yield kind, document


def faults(folder: Path) -> list[str]:
    """What the files below a folder have that their schemas forbid, a line each."""
    files = (path for pattern in (*NAMES, "*.rank") for path in folder.rglob(pattern) if path.is_file())
    return [
        f"{path.relative_to(folder)}: not a valid {name}: {_said(error)}"
        for path in files
        for name, document in documents(path)
        for error in validator(name).iter_errors(document)
    ]


@functools.cache
def validator(name: str) -> Any:
    """What tells how a document differs from a schema."""
    return importlib.import_module("jsonschema").Draft202012Validator(schemas.schema(name))


def printed(patch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What the gate and `advisor compare` print as JSON from now on, each with the name of its schema."""
    said: list[tuple[str, str]] = []
    for module, function, name in ((as_json, "render", "gate"), (texts, "as_json", "compare")):
        prints = getattr(module, function)

        def heard(found: Any, prints: Any = prints, name: str = name) -> str:
            text: str = prints(found)
            said.append((name, text))
            return text

        patch.setattr(module, function, heard)
    return said


def _said(error: Any) -> str:
    return f"{'.'.join(map(str, error.absolute_path))}: {error.message[:200]}"


@pytest.fixture(scope="session", autouse=True)
def written_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Looks through what this session's tests wrote when the last of them is over."""
    with pytest.MonkeyPatch.context() as patch:
        said = printed(patch)
        yield
    if importlib.util.find_spec("jsonschema") is None:  # as in the environment for HTA
        return
    found = faults(tmp_path_factory.getbasetemp())
    for name, text in dict.fromkeys(said):
        found += [f"printed {name}: {_said(error)}" for error in validator(name).iter_errors(json.loads(text))]
    if found:
        pytest.fail("\n".join(found), pytrace=False)

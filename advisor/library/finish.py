"""`python -m advisor.library.finish`: reports on what a block of code has left in a folder; a process of its own.

Judging needs numpy, pandas and memory, freezes objects for the garbage collector, and measures what ops cost here: none
of that belongs into the process that trains. Settings come as JSON on standard input, with the keys of `Asked`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TypedDict

from advisor.errors import AdvisorError, InputError


class Asked(TypedDict):
    """What is to be done. names: files of cells, as run.json has them -> what a reader knows them by."""

    folder: str
    calibrate: bool
    names: dict[str, str]


def finish(asked: Asked) -> None:
    """Writes report.json and report.html into the folder. Raises AdvisorError."""
    from advisor.commands import _captured_record, _options, _ranks, analyze
    from advisor.engine import registry
    from advisor.inputs import jobs
    from advisor.inputs.output import write_file
    from advisor.report import report_file

    folder = Path(asked["folder"])
    record = json.loads((folder / "run.json").read_text("utf-8"))
    _captured_record.complete(folder, record, sys.executable, calibrate=asked["calibrate"], quiet=True)
    rules = analyze.loaded_rules()
    config = _options.config_of(argparse.Namespace(select=[], ignore=[]))
    report = analyze.report_of(jobs.find([folder])[0], config, rules, _ranks.Reading(quiet=True))
    text = _renamed(report_file.encode(report).decode("utf-8"), asked["names"])
    report = report_file.decode(text.encode("utf-8"))
    write_file(folder / "report.json", text, replace=True)
    write_file(folder / "report.html", registry.load_reporter("html")(report), replace=True)


def _renamed(text: str, names: dict[str, str]) -> str:
    for path in sorted(names, key=len, reverse=True):
        text = text.replace(json.dumps(path)[1:-1], json.dumps(names[path])[1:-1])
    return text


def main() -> int:
    """Does what standard input asks for; a failure is one line on standard error."""
    try:
        finish(json.load(sys.stdin))
    except AdvisorError as failure:
        sys.stderr.write(f"{failure}\n")
        return failure.exit_code
    except Exception as failure:
        sys.stderr.write(f"internal error: {type(failure).__name__}: {failure}".splitlines()[0] + "\n")
        return InputError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

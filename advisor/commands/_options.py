"""Options that several commands share, and what they mean."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.engine import config
from advisor.engine.config import Config
from advisor.errors import UsageError

# The suffix of a file picks its format; a folder takes every asked-for format under these names.
SUFFIXES = {
    "html": ".html",
    "json": ".json",
    "markdown": ".md",
    "agent": ".agent.md",
    "text": ".txt",
    "sarif": ".sarif",
    "junit": ".xml",
    "perfetto": ".perfetto.json.gz",
}
DEFAULT_FOLDER = "advisor-report"


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """--format, --output, --select, --ignore and the options of every command."""
    group = parser.add_argument_group("report")
    group.add_argument(
        "--format",
        action="append",
        default=[],
        metavar="FORMAT",
        help="html, json, markdown, agent (at most 4 KB), text, sarif or junit; repeatable; a single format without "
        "--output goes to stdout",
    )
    group.add_argument(
        "-o", "--output", type=Path, metavar="PATH", help="a folder, or a file whose suffix selects the format"
    )
    group.add_argument("--select", action="append", default=[], metavar="RULE,…", help="use only these rules")
    group.add_argument("--ignore", action="append", default=[], metavar="RULE,…", help="do not use these rules")
    group.add_argument(
        "--to",
        action="append",
        default=[],
        metavar="SINK",
        help="also send the report to wandb, mlflow, tensorboard or comment (on a pull request); repeatable",
    )
    add_common_options(group)


def add_common_options(parser: argparse._ActionsContainer) -> None:
    """--quiet, --no-color, --debug."""
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors and requested output")
    parser.add_argument("--no-color", action="store_true", help="no colors on the terminal (like NO_COLOR)")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an internal error")


@dataclass(frozen=True, slots=True)
class Output:
    """Where the report goes.

    formats: at least one. folder: made or reused, or None. file: the one file, or None. Neither: stdout.
    """

    formats: tuple[str, ...]
    folder: Path | None = None
    file: Path | None = None

    @property
    def stdout(self) -> bool:
        """The one format goes to stdout and no folder is made."""
        return self.folder is None and self.file is None


def output_of(args: argparse.Namespace, more: tuple[str, ...] = ()) -> Output:
    """What --format and --output ask for. more: formats that this command makes besides those of reports.

    Raises UsageError for an unknown format or an impossible pair.
    """
    formats = tuple(dict.fromkeys(name for value in args.format for name in value.split(",")))
    _check_formats(tuple(name for name in formats if name not in more))
    if args.to:
        sinks_of(args)
    path: Path | None = args.output
    if path is None:
        if len(formats) == 1:
            return Output(formats)
        return Output(formats or ("html", "json"), folder=Path(DEFAULT_FOLDER))
    if path.is_dir() or not path.suffix:
        return Output(formats or ("html", "json"), folder=path)
    return Output((_format_of_file(path, formats),), file=path)


def sinks_of(args: argparse.Namespace) -> tuple[str, ...]:
    """The sinks that --to names. Raises UsageError for an unknown one."""
    from advisor.engine import registry

    names = tuple(dict.fromkeys(name.strip() for value in args.to for name in value.split(",") if name.strip()))
    if args.to and not names:
        raise UsageError(f"--to names no sink; use one of {', '.join(registry.names_of(registry.SINKS))}")
    for name in names:
        config.known(name, registry.names_of(registry.SINKS), "sink")
    return names


def _check_formats(formats: tuple[str, ...]) -> None:
    if not formats:
        return  # the registry need not be asked
    from advisor.engine import registry

    for name in formats:
        config.known(name, registry.reporter_names(), "format")


def _format_of_file(path: Path, formats: tuple[str, ...]) -> str:
    if len(formats) > 1:
        raise UsageError(f"--output {path} is one file, but {len(formats)} formats were requested; name a folder")
    if formats:
        return formats[0]
    for name, suffix in SUFFIXES.items():
        if path.suffix.lower() == suffix:
            return name
    # One of two parts picks nothing: `.json.gz` may be a trace, `.agent.md` is Markdown.
    suffixes = ", ".join(suffix for suffix in SUFFIXES.values() if suffix.count(".") == 1)
    raise UsageError(f"--output {path}: the suffix matches no format; use one of {suffixes}, or add --format")


def safe_name(name: str) -> str:
    """A name that came from a file or a trace as one harmless path component."""
    kept = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
    return kept.lstrip(".")[:80] or "job"


def config_of(args: argparse.Namespace) -> Config:
    """The configuration file with --select and --ignore on top of it, its rule ids checked."""
    found = config.find(Path.cwd())
    select = tuple(name for value in args.select for name in value.split(","))
    ignore = dict.fromkeys((name for value in args.ignore for name in value.split(",")), "")
    chosen = replace(found, select=select or found.select, ignore={**found.ignore, **ignore})
    if chosen.select or chosen.ignore or chosen.thresholds:
        # Only what is named can be wrong; all rules take a quarter of a second to load, and `run` has a script waiting.
        from advisor.engine import ask_rules, registry

        ask_rules.choose(registry.load_rules(), chosen)
    return chosen


def rules_of(values: Iterable[str]) -> set[str]:
    """The rules that --only names. Raises UsageError for an unknown one."""
    names = {name for value in values for name in value.split(",") if name}
    if names:
        from advisor.engine import registry

        known = [rule.id for rule in registry.load_rules().rules]
        for name in sorted(names):
            config.known(name, known, "rule")
    return names


def positive(text: str) -> int:
    """An option's whole number of at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be a whole number of at least 1")
    return int(text)

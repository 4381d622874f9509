"""`advisor try [options] script args…`: applies its own advice without an edit, and measures it on this machine."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.commands import _options, _script, _terminal, run
from advisor.errors import AdvisorError, UsageError

if TYPE_CHECKING:
    from advisor.gate.pairs import Side
    from advisor.model import Finding, Report, Treatment, Trial, Tried
    from advisor.trying.candidates import Candidate

_EPILOG = """examples:
  advisor try train.py --epochs 3
  advisor try --report advisor-report --only input-bound train.py --epochs 3
  advisor try --with loader:num_workers=2 --with threads:count=1 train.py
  git diff > faster.patch; git stash; advisor try --patch faster.patch train.py
"""
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "try",
        help="apply fixes without editing the script, and measure them on this machine",
        usage="advisor try [options] SCRIPT ARGS…\n       advisor try [options] -- LAUNCHER ARGS…",
        description="Profiles a training script, applies each fix that needs no edit inside the script's process, and "
        "compares it with the unchanged script: step time, losses, memory. The script is started many times "
        "and writes its usual output files; its source files are never changed.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--report", type=Path, metavar="FOLDER", help="try the fixes of this report; do not profile again"
    )
    parser.add_argument("--only", action="append", default=[], metavar="RULE,…", help="try only fixes of these rules")
    parser.add_argument(
        "--with", dest="treatments", action="append", default=[], metavar="NAME:ARG=VALUE,…",
        help="try this change instead of the findings; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--patch", dest="patches", action="append", default=[], type=Path, metavar="FILE",
        help="try this unified diff on a temporary copy instead of the findings; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--budget", type=seconds, default=600.0, metavar="TIME", help="time limit: 90s, 10m (default), 1h"
    )
    parser.add_argument(
        "--export", type=Path, metavar="FILE", help="write predicted and measured savings (nothing of the script)"
    )
    parser.add_argument("--no-remember", action="store_true", help="do not save the results for later predictions")
    parser.add_argument("--mode", choices=("lockstep", "blocks"), help="default: lockstep if memory allows")
    parser.add_argument("--python", metavar="PATH", help="Python interpreter for the script (default: this one)")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path(_options.DEFAULT_FOLDER), metavar="FOLDER",
        help=f"folder of the report (default: {_options.DEFAULT_FOLDER})",
    )  # fmt: skip
    _options.add_common_options(parser)
    parser.set_defaults(handler=try_, target=[])
    _script.take_target(parser)


def seconds(text: str) -> float:
    """A duration such as `90s`, `10m`, `1h`; a bare number means minutes."""
    unit = text[-1:] if text[-1:] in _UNITS else ""
    try:
        value = float(text.removesuffix(unit)) * _UNITS[unit or "m"]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: not a duration; write 90s, 10m or 1h") from None
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text}: must be greater than zero")
    return value


def try_(args: argparse.Namespace) -> int:
    """Profiles unless a report is given, tries, prints the table, and adds it to the report."""
    from msgspec.structs import replace

    from advisor.gate.ab import end_in_order
    from advisor.gate.pairs import Side
    from advisor.gate.turns import environment
    from advisor.trying import as_text
    from advisor.trying.candidates import Candidate, of_report
    from advisor.trying.treatments import parse, words

    end_in_order()
    treatments, only = [parse(text) for text in args.treatments], _options.rules_of(args.only)
    if args.report and not args.target:
        args.target = _command_of(args.report)
    target = run.target_of(args.target, args.python)
    base = Side("base", tuple(target.command), Path.cwd(), environment(), "the script as it is")
    patches = [_patch(path, base) for path in args.patches]
    folder, report = None, None
    if treatments or patches:
        found = [Candidate(words(one), (one,), risk="numerics") for one in treatments]
        found += [
            Candidate(str(path), (one,), risk="numerics") for path, one in zip(args.patches, patches, strict=True)
        ]
        others: list[Trial] = []
    else:
        folder = args.report or args.output
        report = _report(args, folder)
        found, others = of_report(report, only, _diff_of(args, report, base))
    if not found:
        print(_nothing(others))
        return 0
    tried, failure = _session(args, base, found)
    tried = replace(tried, trials=(*tried.trials, *others))
    print(as_text.render(tried, _remembered(args, report, tried)), end="")
    # A session that measured nothing takes nothing away that an earlier one measured.
    if report is not None and folder is not None and any(one.verdict != "not tried" for one in tried.trials):
        _keep(replace(report, tried=tried), folder, quiet=args.quiet)
    if failure is not None:
        raise failure
    return 0


def _remembered(args: argparse.Namespace, report: Report | None, tried: Tried) -> Callable[[Sequence[str]], str]:
    """Keeps the results and writes the card; what is returned says how earlier promises of rules held."""
    from importlib import metadata

    from advisor.inputs.output import write_file
    from advisor.places.user_folders import data_folder
    from advisor.trying import history

    # Without a report the version is known of our own interpreter only.
    torch = "" if args.python else next((one.version for one in metadata.distributions(name="torch")), "")
    where = history.where_of(report, torch)
    home = data_folder()
    earlier = history.recall(home, where)
    if not args.no_remember and not history.remember(home, history.records_of(tried, where)):
        say(args)(f"cannot write to {home}; the results are not saved")
    if args.export:
        write_file(args.export, history.card(tried, where), replace=False)
        say(args)(f"{args.export}: written; it contains rules, device and versions, but nothing of the script")
    return lambda rules: history.held(earlier, rules)


def _command_of(path: Path) -> list[str]:
    """The command line that a report is of. Raises UsageError where it lacks words that were secret."""
    from advisor.capture.inside.facts.source.secrets import MASK
    from advisor.gate.files import read_report

    words = read_report(path, baseline=False).run.command
    if not words or any(MASK in word for word in words):
        reason = "arguments are left out of it as secrets" if words else "it has no command line"
        raise UsageError(f"{path}: {reason}; give the script and its arguments as well")
    return list(words)


def _report(args: argparse.Namespace, folder: Path) -> Report:
    """The report to take advice from: a stored one of this script, or that of a profile made now."""
    import os

    from advisor.capture.launcher.launch import UNDO
    from advisor.gate import undo
    from advisor.gate.files import read_report
    from advisor.places import script_file

    if args.report:
        report = read_report(args.report, baseline=False)
        reported, ours = (script_file.named(words) for words in (report.run.command, args.target))
        if reported and ours and _another(reported, ours):
            raise UsageError(f"{args.report} is a report of {reported}, not of {ours}; leave out --report")
        return report
    python = ["--python", args.python] if args.python else []
    words = [sys.executable, "-P", "-m", "advisor", "run", "--quiet", "--stop-after-profile"]
    words += [*python, "--output", str(folder), *args.target]
    say(args)("profiling the script first")
    with (
        undo.journal("downloads") as (place, _),
        subprocess.Popen(words, stdout=sys.stderr, env={**os.environ, UNDO: place}) as process,
    ):
        try:
            status = process.wait()
        except BaseException:
            process.terminate()  # passed on to the script
            raise
    if status or not (folder / "report.json").is_file():
        raise AdvisorError(f"the script could not be profiled (status {status}); run it alone to see why")
    return read_report(folder, baseline=False)


def _another(reported: str, ours: str) -> bool:
    """Whether these are two scripts or modules; a script that was moved since the report keeps its name."""
    first, second = Path(reported), Path(ours)
    if ".py" not in (first.suffix, second.suffix):
        return reported != ours
    if first.suffix != second.suffix:
        return False  # a script may be started as a module as well
    return first.name != second.name or (first.is_file() and first.resolve() != second.resolve())


def _diff_of(args: argparse.Namespace, report: Report, base: Side) -> Callable[[Finding], str]:
    """Writes the fix of a finding as a patch that applies to the files as they are."""
    import math

    from advisor.fixing.edits import NoEditError
    from advisor.fixing.patches import of_finding
    from advisor.fixing.profiled_files import ProfiledFiles
    from advisor.gate.files import made_s
    from advisor.trying.patched import PatchError, place

    since_s = made_s(args.report) if args.report else math.inf
    profiled = ProfiledFiles.of(report, Path.cwd(), since_s)
    words = [word for word in args.target if word.endswith(".py")]
    files = {Path(name).resolve(): name for name in (*words, *report.run.sources)}
    for path, name in files.items() if args.report else ():
        if path.is_file() and profiled.is_changed(path):
            say(args)(f"{name} was changed after this report: its predictions are those of the script as it was")

    def diff_of(finding: Finding) -> str:
        diff = of_finding(report, finding, Path.cwd(), since_s)
        try:
            place(diff, base)
        except PatchError as failure:
            raise NoEditError(f"its patch {failure}") from failure
        return diff

    return diff_of


def _patch(path: Path, base: Side) -> Treatment:
    """The patch of a file, which applies. Raises UsageError, in one line, where it cannot be read or does not apply."""
    from advisor.model import Treatment
    from advisor.trying.patched import PatchError, place

    try:
        diff = path.read_bytes().decode("utf-8")  # the ends of its lines are those of the files
    except (OSError, UnicodeDecodeError) as failure:
        raise UsageError(f"--patch {path}: cannot be read ({getattr(failure, 'strerror', 'no text')})") from failure
    failures = []
    for text in dict.fromkeys((diff, diff.replace("\r\n", "\n"))):  # editors of Windows end lines of a patch their way
        try:
            place(text, base)
        except PatchError as failure:
            failures.append(failure)
        else:
            return Treatment("patch", {"diffs": [text], "names": [str(path)]})
    raise UsageError(f"--patch {path}: {failures[0]}") from failures[0]


def _session(args: argparse.Namespace, base: Side, found: Sequence[Candidate]) -> tuple[Tried, BaseException | None]:
    """What was tried, and what ended it early: an interrupt, or a failure of the script itself."""
    import random
    import time

    from advisor.trying.pairing import layout_of, measurer, of_one_version, steps_of, telling
    from advisor.trying.patched import Mirrors, scratch
    from advisor.trying.session import SELF_TEST, Session

    tell = say(args)
    began = time.monotonic()
    profiled = not (args.report or args.treatments or args.patches)
    layout, cost, files = layout_of(base, args.mode, "nothing" if profiled else "downloads")
    pair_s = cost.of_pair(layout)
    fits = max(0.0, args.budget - SELF_TEST * pair_s) / pair_s
    tell(
        f"{len(found)} change{'s' * (len(found) > 1)} to try in {args.budget / 60:.3g} min. A pair takes about "
        f"{pair_s:.0f} s, so about {fits:.0f} fit after the self-test; each change needs 4 to 14. Fewer fit if the "
        f"script ends before {steps_of(layout)} steps and is started again."
    )
    with scratch() as folder:
        sides, measure = (
            Mirrors(Path(folder)),
            telling(of_one_version(measurer(layout, random.Random(), tell), files), tell),
        )
        session = Session(base, measure, args.budget, tell, side_of=sides.side, began=began)
        if pair_s > args.budget:
            return session.without_time(found, pair_s), None
        try:
            return session.run(found), None
        except (Exception, KeyboardInterrupt, SystemExit) as failure:
            if not session.trials:
                raise
            return session.tried(), failure


def _nothing(others: Sequence[Trial]) -> str:
    from advisor.trying import as_text

    if not others:
        return "Nothing to try: no findings."
    return "\n".join(["Nothing can be tried without an edit:", *as_text.untried(others)])


def _keep(report: Report, folder: Path, *, quiet: bool) -> None:
    """Writes the report again, with what was tried, in the formats that its folder holds."""
    import os

    from advisor.engine import registry
    from advisor.gate.files import made_s
    from advisor.inputs.output import write_file

    since_s = made_s(folder) if (folder / "report.json").is_file() else None
    written = []
    for name, suffix in _options.SUFFIXES.items():
        path = folder / f"report{suffix}"
        if path.is_file():
            write_file(path, registry.load_reporter(name)(report), replace=True)
            written.append(path)
    if since_s is not None:
        # Scripts that were changed after the profile are told by it.
        os.utime(folder / "report.json", (since_s, since_s))
    if written and not quiet:
        _terminal.note(f"added to {', '.join(map(str, written))}")


def say(args: argparse.Namespace) -> Callable[[str], None]:
    """Tells what is being measured, on stderr, unless --quiet."""

    def tell(text: str) -> None:
        if not args.quiet:
            _terminal.note(text)

    return tell

"""`advisor gate`: performance regressions kept out, by exact counters and by step time measured side by side."""

from __future__ import annotations

import argparse
import datetime
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.commands import _gate_history, _script
from advisor.commands._options import add_common_options
from advisor.errors import UsageError

if TYPE_CHECKING:
    from advisor.gate.config import GateConfig
    from advisor.gate.model import Result
    from advisor.gate.pairs import Side
    from advisor.model import Report

_USAGE = """advisor gate [options] BASE.json HEAD.json
       advisor gate [options] check (REPORT.json | -- train.py ARGS…)
       advisor gate [options] baseline write|update|show [REPORT.json | -- …]
       advisor gate [options] history (add REPORT.json… | show)
       advisor gate [options] --base REF -- train.py ARGS…
       advisor gate [options] --head-with TREATMENT -- train.py ARGS…"""
_DESCRIPTION = """Detects performance regressions: compares counters with a checked-in baseline,
step time with another commit on this machine, or two stored reports.
Exit status: 0 pass; 1 regression or budget exceeded; 2 usage; 3 inconclusive,
not comparable or no baseline; 4 a measured script failed; 70 internal error."""
_EXAMPLES = """examples:
  advisor gate baseline write -- train.py --steps 100
  advisor gate check -- train.py --steps 100
  advisor gate --base main -- train.py --steps 200
  advisor gate --base-command "python a.py" --head-command "python b.py"
"""
_ACTIONS = ("write", "update", "show")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "gate",
        help="check a change for performance regressions",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("words", nargs="*", metavar="WORDS", help=argparse.SUPPRESS)
    parser.add_argument("--base", metavar="REF", help="compare --head with this commit, in a git worktree")
    parser.add_argument("--head", metavar="REF", help="default: a copy of the working tree")
    parser.add_argument("--base-command", metavar="COMMAND", help="run this command line instead of a commit")
    parser.add_argument("--head-command", metavar="COMMAND", help="the command line to compare with --base-command")
    parser.add_argument(
        "--head-with",
        action="append",
        default=[],
        metavar="TREATMENT",
        help="apply this change to the head, such as loader:num_workers=2; repeatable",
    )
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="default: perf-baseline.json, or as configured")
    parser.add_argument(
        "--share", action="append", default=[], metavar="PATH", help="git-ignored data that both sides need"
    )
    parser.add_argument("--mode", choices=("lockstep", "blocks"), help="default: lockstep if memory allows")
    parser.add_argument(
        "--runs", type=int, default=2, metavar="N", help="number of profiles for a baseline (default: 2)"
    )
    parser.add_argument("--no-explain", action="store_true", help="do not profile base and head after a regression")
    _gate_history.add_options(parser)
    _add_output(parser)
    add_common_options(parser)
    parser.set_defaults(handler=run, command=None)
    _split_at_dashes(parser)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        action="append",
        default=[],
        metavar="FORMAT",
        help="text, json, markdown, github, sarif, junit; repeatable",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="PATH", help="a folder, or a file whose suffix selects the format"
    )


def _split_at_dashes(parser: argparse.ArgumentParser) -> None:
    """Everything after the first `--` is the measured command, untouched, and stands in `args.command`."""
    parse = parser.parse_known_args

    def split(args: Any = None, namespace: Any = None) -> Any:
        words = list(args or ())
        place = words.index("--") if "--" in words else len(words)
        found, rest = parse(words[:place], namespace)
        if rest:
            # Options may stand between the words; argparse alone would call the later words unknown.
            options = [word for word in rest if word.startswith("-")]
            if options:
                parser.error(f"unrecognized arguments: {' '.join(options)}")
            found.words = [*found.words, *rest]
        found.command = words[place + 1 :] if place < len(words) else None
        _script.hint(parser, found.command or (), quiet=found.quiet)
        return found, []

    parser.parse_known_args = split  # type: ignore[method-assign]


def run(args: argparse.Namespace) -> int:
    """Runs the gate that the words ask for; returns its exit status."""
    from advisor.engine import config
    from advisor.gate.config import parse
    from advisor.gate.formats import outputs

    settings = parse(config.find(Path.cwd()).gate)
    if args.words[:1] == ["history"] and args.command is None:
        return _gate_history.run(args, settings)
    outputs.formats_of(args)
    if args.command is not None:
        _check_command(args.command)
    word = args.words[0] if args.words else ""
    if word == "baseline":
        return _baseline(args, settings)
    if word == "check":
        result = _check(args, settings)
    elif args.base or args.head or args.base_command or args.head_command or args.head_with:
        result = _side_by_side(args, settings)
    else:
        result = _stored(args, settings)
    outputs.write(result, args)
    return result.exit_code


def _check_command(command: Sequence[str]) -> None:
    if not command:
        raise UsageError("no command after --; name a script, such as -- train.py")
    if command[0].endswith(".py") and not Path(command[0]).is_file():
        raise UsageError(f"{command[0]}: no such script; name one that exists")


def _stored(args: argparse.Namespace, settings: GateConfig) -> Result:
    from advisor.gate import files, stored

    if args.command is not None:
        raise UsageError("nothing to compare; use `gate check -- …` for the baseline, or `gate --base REF -- …`")
    if len(args.words) != 2:
        raise UsageError(f"gate needs two reports, BASE.json and HEAD.json; {len(args.words)} given; see --help")
    base, head = Path(args.words[0]), Path(args.words[1])
    before, after = files.read_report(base, baseline=True), files.read_report(head, baseline=False)
    return stored.compare_reports(before, after, (str(base), str(head)), settings, datetime.date.today())


def _check(args: argparse.Namespace, settings: GateConfig) -> Result:
    from advisor.gate import baseline, check

    path = check.baseline_path(args.baseline, settings)
    held = baseline.read(path)  # first: without a baseline nothing needs to be measured
    reports, name = _measured(args, args.words[1:], runs=1)
    return check.check(reports[0], held, settings, datetime.date.today(), (str(path), name))


def _baseline(args: argparse.Namespace, settings: GateConfig) -> int:
    from advisor.gate import baseline, check
    from advisor.inputs import output

    action = args.words[1] if len(args.words) > 1 else ""
    if action not in _ACTIONS:
        raise UsageError(f"gate baseline needs one of {', '.join(_ACTIONS)}")
    path = check.baseline_path(args.baseline, settings)
    if action == "show":
        sys.stdout.write(_shown(baseline.read(path)))
        return 0
    if action == "write" and path.exists():
        raise UsageError(f"{path} exists; `advisor gate baseline update` changes it")
    held = baseline.read(path) if action == "update" else baseline.Baseline()
    reports, name = _measured(args, args.words[2:], runs=args.runs)
    entry = baseline.entry_of(reports, datetime.date.today())
    output.write_file(path, baseline.encode(held.put(entry)), replace=True)
    left_out = f"; omitted because they vary: {', '.join(entry.unsteady)}" if entry.unsteady else ""
    sys.stdout.write(f"{path}: {len(entry.counters)} counters of '{entry.workload}' from {name}{left_out}\n")
    return 0


def _shown(held: Any) -> str:
    from advisor.gate import baseline, counters

    lines = []
    for entry in held.entries:
        where = ", ".join(f"{key} {value}" for key, value in entry.fingerprint.items())
        lines += [f"{entry.workload}  ({where})", f"  {baseline.age_note(entry.written, datetime.date.today())}"]
        lines += [f"  {id_:<32} {value:,g}" for id_, value in entry.counters.items() if counters.DETAIL not in id_]
        lines += [f"  {id_:<32} varies" for id_ in entry.unsteady if counters.DETAIL not in id_]
    return "\n".join(lines) + "\n"


def _measured(args: argparse.Namespace, words: Sequence[str], runs: int) -> tuple[list[Report], str]:
    """The reports to judge: a stored one, or `runs` profiles of the command."""
    from advisor.gate import files, profile

    if (len(words) == 1) == (args.command is not None) or len(words) > 1:
        raise UsageError("name one stored REPORT, or a command after --: `-- train.py`")
    if args.command is None:
        return [files.read_report(Path(words[0]), baseline=False)], str(words[0])
    if runs < 1:
        raise UsageError(f"--runs {runs}: a baseline needs at least one run")
    return [profile.profile(args.command) for _ in range(runs)], " ".join(args.command)


def _side_by_side(args: argparse.Namespace, settings: GateConfig) -> Result:
    if args.words:
        raise UsageError(f"'{args.words[0]}' is unexpected here; the measured command follows --")
    if args.base_command or args.head_command:
        return _commands(args, settings)
    from advisor.gate import ab, trees
    from advisor.gate.pairs import Side, command_of
    from advisor.gate.turns import environment

    if args.head and not args.base:
        raise UsageError("--head needs --base, the commit to compare with")
    if not args.command:
        raise UsageError("name what to measure after --, such as: advisor gate --base main -- train.py")
    if not args.base:
        return _treated(args, settings)
    with trees.trees(args.base, args.head, [*settings.share, *args.share]) as both:
        command = command_of(args.command)
        base = Side("base", command, both.base, environment(both.python_path(both.base)), both.base_name)
        head = _with(args, Side("head", command, both.head, environment(both.python_path(both.head)), both.head_name))
        return ab.run(base, head, settings, _say(args), root=both.root, mode=args.mode, explain=not args.no_explain)


def _commands(args: argparse.Namespace, settings: GateConfig) -> Result:
    from advisor.gate import ab
    from advisor.gate.pairs import Side, command_of
    from advisor.gate.turns import environment

    if not (args.base_command and args.head_command) or args.base or args.head or args.command:
        raise UsageError("--base-command and --head-command go together, without --base, --head and --")
    commands = [shlex.split(line) for line in (args.base_command, args.head_command)]
    for command in commands:
        _check_command(command)
    base = Side("base", command_of(commands[0]), Path.cwd(), environment(), args.base_command)
    head = _with(args, Side("head", command_of(commands[1]), Path.cwd(), environment(), args.head_command))
    return ab.run(base, head, settings, _say(args), mode=args.mode, explain=not args.no_explain)


def _treated(args: argparse.Namespace, settings: GateConfig) -> Result:
    """The working tree against itself with a change that is made in the head's process."""
    from advisor.gate import ab
    from advisor.gate.pairs import Side, command_of
    from advisor.gate.turns import environment

    base = Side("base", command_of(args.command), Path.cwd(), environment(), "the working tree")
    head = _with(args, replace(base, name="head", label=" ".join(args.head_with)))
    # A profile does not know of the change, so there is nothing to explain it by.
    return ab.run(base, head, settings, _say(args), mode=args.mode, explain=False)


def _with(args: argparse.Namespace, side: Side) -> Side:
    from advisor.trying.treatments import applied, parse

    return applied(side, [parse(text) for text in args.head_with]) if args.head_with else side


def _say(args: argparse.Namespace) -> Callable[[str], None]:
    """Tells what is being measured, on stderr, unless --quiet."""

    def say(text: str) -> None:
        if not args.quiet:
            print(f"advisor: {text}", file=sys.stderr, flush=True)

    return say

"""`advisor run [options] script args…`: profiles a training script as it is."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.commands import _early_forms, _options, _script, _terminal

if TYPE_CHECKING:
    from advisor.capture.launcher.launch import Ended, Options, Target
    from advisor.capture.launcher.publish import Publisher
    from advisor.commands._options import Output


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "run",
        help="profile a training script and report on it",
        usage="advisor run [options] SCRIPT ARGS…\n"
        "       advisor run [options] -m MODULE ARGS… | -c CODE ARGS… | -- LAUNCHER ARGS…",
        description="Runs an unmodified training script, profiles a few of its steps, and reports what to change. "
        "Everything after the script is passed to the script.",
        epilog="example: advisor run train.py --epochs 3",
        allow_abbrev=False,
    )
    capture = parser.add_argument_group("capture")
    capture.add_argument(
        "--steps", type=_options.positive, metavar="N", default=0, help="number of training steps to profile"
    )
    capture.add_argument("--warmup", type=_count, metavar="N", help="number of training steps to skip before profiling")
    capture.add_argument("--at-step", type=_options.positive, metavar="N", default=0, help="start profiling at step N")
    capture.add_argument("--at-epoch", type=_options.positive, metavar="N", default=0, help="profile the Nth epoch")
    capture.add_argument(
        "--every",
        type=_options.positive,
        metavar="N",
        default=0,
        help="profile again every N steps, and compare the profiles",
    )
    capture.add_argument("--stop-after-profile", action="store_true", help="end the script when the trace is complete")
    capture.add_argument("--no-lines", action="store_true", help="do not record lines of the source code")
    capture.add_argument("--memory", action="store_true", help="also record memory allocations (larger trace)")
    capture.add_argument("--rank", type=_ranks, metavar="R,…", help="profile only these ranks")
    capture.add_argument(
        "--no-calibrate", action="store_true", help="do not measure the cost of ops and memory on this machine"
    )
    capture.add_argument("--python", metavar="PATH", help="Python interpreter for the script (default: this one)")
    _options.add_report_options(parser)
    parser.set_defaults(handler=run, launcher=False)
    _script.take_target(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the script, then reports. The status is the script's own."""
    import tempfile

    from advisor.capture.inside.facts.source import secrets
    from advisor.capture.launcher import launch

    target = target_of(args.target, args.python)
    output = _options.output_of(args)
    _options.config_of(args)
    options = _options_of(args, output)
    python = target.command[0] if target.direct else sys.executable
    header: dict[str, Any] = {
        "command": secrets.mask(args.target),
        "environment": secrets.allowed(os.environ),
        "exit_status": None,
    }
    folder = Path(tempfile.mkdtemp(prefix="torch-advisor-"))
    publisher = _publisher(folder, header, output, args)
    try:
        ended = _captured(target, folder, options, publisher, args)
        header["exit_status"] = ended.status
        failed = _report(folder, output, args, header, python, publisher)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if ended.signal:
        return launch.end_as(ended)
    home = publisher.home() if publisher else None
    if home and not args.quiet:
        _terminal.offer(home / "report.html")
    return ended.status or failed


def _options_of(args: argparse.Namespace, output: Output) -> Options:
    """What was asked of capture. Raises UsageError for options that contradict each other."""
    from advisor.capture.launcher import launch
    from advisor.errors import UsageError

    chosen = [
        name
        for name, value in (("--at-step", args.at_step), ("--at-epoch", args.at_epoch), ("--warmup", args.warmup))
        if value
    ]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} both set where profiling starts; use one")
    if args.every and args.stop_after_profile:
        raise UsageError("--every profiles again later, and --stop-after-profile ends the script; use one")
    return launch.Options(
        args.steps,
        args.warmup,
        args.stop_after_profile,
        not args.no_lines,
        args.memory,
        args.rank,
        args.at_step,
        args.at_epoch,
        args.every,
        str(output.folder.absolute()) if output.folder else "",
    )


def target_of(words: list[str], python: str | None) -> Target:
    """What to start. Raises UsageError when there is nothing to start, or no torch to profile."""
    from advisor.capture.launcher.launch import Target, targets_of
    from advisor.errors import UsageError

    if not words or words == ["--"]:
        raise UsageError("no script given; example: advisor run train.py --epochs 3")
    if words[0] == "--":
        command = words[1:]
        if shutil.which(command[0]) is None:
            raise UsageError(f"{command[0]}: no such command; is it installed in this environment?")
        return Target(tuple(command), direct=False, targets=targets_of(command))
    if words[0] in ("-m", "-c") and len(words) == 1:
        raise UsageError(f"{words[0]} needs a {'module' if words[0] == '-m' else 'line of code'}")
    if words[0][:2] not in ("-m", "-c") and words[0] != "-":
        _check_script(words[0])
    interpreter = _interpreter(python)
    return Target((interpreter, *words), direct=True)


def _check_script(name: str) -> None:
    from advisor.errors import UsageError

    path = Path(name)
    if not path.exists():
        raise UsageError(f"{name}: no such script")
    if path.suffix == ".ipynb":
        raise UsageError(
            f"{name} is a notebook; profile a cell of it (%load_ext advisor, then %%advisor), or convert it: "
            f"jupyter nbconvert --to script {name}"
        )
    if path.suffix in (".sh", ".bash"):
        raise UsageError(f"{name} is a shell script; start it as a launcher: advisor run -- bash {name}")
    if path.is_dir() and not (path / "__main__.py").is_file():
        raise UsageError(f"{name} is a folder without a __main__.py; name the script, or use -m for a package")


def _interpreter(python: str | None) -> str:
    """The script's interpreter: the asked-for one, else ours, else the active environment's; it must have torch."""
    from advisor.capture.launcher import interpreter

    return interpreter.find(python)


def _publisher(folder: Path, header: dict[str, Any], output: Output, args: argparse.Namespace) -> Publisher | None:
    """What fills the report's folder while the script runs; None where no folder was asked for."""
    from advisor.capture.launcher.publish import Publisher
    from advisor.inputs.output import claim_folder

    target = output.folder
    if target is None:
        return None

    def say(home: Path) -> None:
        if not args.quiet:
            text = f"advisor: the trace is complete: `advisor analyze {target}` works while the script continues"
            print(text, file=sys.stderr, flush=True)

    return Publisher(folder, header, lambda: claim_folder(target), say)


def _captured(
    target: Target, folder: Path, options: Options, publisher: Publisher | None, args: argparse.Namespace
) -> Ended:
    """Runs the script to its end with capture in it."""
    from advisor.capture.launcher import launch

    try:
        process = launch.start(target, folder, options)
    except OSError as failure:
        from advisor.errors import UsageError

        raise UsageError(f"{target.command[0]} cannot be started: {failure.strerror}") from failure
    if publisher is None:
        return launch.wait(process)

    words = [f"--{name}={one}" for name in ("select", "ignore") for one in getattr(args, name)]
    with _early_forms.beside(publisher, words) as look:
        return launch.wait(process, look)


def _report(
    folder: Path,
    output: Output,
    args: argparse.Namespace,
    header: dict[str, Any],
    python: str,
    publisher: Publisher | None,
) -> int:
    """Moves the traces home and reports on them; our own failures are one line and status 4."""
    from advisor.capture.launcher import launch
    from advisor.commands import _captured_record
    from advisor.commands.analyze import finish
    from advisor.errors import FAILED, AdvisorError

    try:
        record = launch.assemble(folder, header)
        if not any(rank["files"] for rank in record["ranks"]):
            if publisher:
                publisher.withdraw()
            return _nothing(record, args)
        _captured_record.complete(folder, record, python, calibrate=not args.no_calibrate, quiet=args.quiet)
        # Without a folder to move to, what was captured stays where it is.
        if publisher is None:
            return finish(folder, output, args)
        return _at_home(publisher, output, args)
    except Exception as failure:
        if args.debug:
            raise
        text = str(failure) if isinstance(failure, AdvisorError) else f"{type(failure).__name__}: {failure}"
        print(f"advisor: {text.splitlines()[0]}", file=sys.stderr)
        return FAILED


def _at_home(publisher: Publisher, output: Output, args: argparse.Namespace) -> int:
    """Reports from the report's folder; from where it lies now, if another run moves it aside meanwhile."""
    from advisor.commands.analyze import finish
    from advisor.errors import AdvisorError

    home = publisher.bring_home()
    try:
        return finish(home, replace(output, folder=home), args)
    except AdvisorError:
        moved = publisher.home()
        if moved is None or moved == home:
            raise
        return finish(moved, replace(output, folder=moved), args)


def _nothing(record: dict[str, Any], args: argparse.Namespace) -> int:
    """Says why no report is there, but with --quiet. Raises AdvisorError where capture failed."""
    from advisor.capture.inside.recorded_windows import GAVE_WAY
    from advisor.errors import AdvisorError

    ends = [rank["out_of_memory"] for rank in record["ranks"] if rank.get("out_of_memory")]
    notes = [note for rank in record["ranks"] for note in rank["notes"]]
    if ends:
        from msgspec import convert

        from advisor.capture.record import OutOfMemory
        from advisor.report.memory_end import sentence

        why = sentence(convert(ends[0], OutOfMemory))
    elif GAVE_WAY in notes:  # as it asked for: no failure of ours
        why = f"{GAVE_WAY}; remove its profiler, or record later steps: --at-step N"
    elif notes:
        raise AdvisorError(f"nothing was profiled: {notes[0]}")
    else:
        why = _why_nothing(record, args)
    if not args.quiet:  # a script that trains nothing looks then as it does without us
        print(f"advisor: nothing was profiled: {why}", file=sys.stderr)
    return 0


def _why_nothing(record: dict[str, Any], args: argparse.Namespace) -> str:
    """Why a script that ran without a fault of its own or ours left no trace."""
    if record["exit_status"]:
        return "the script ended before its training steps could be recorded"
    if not record["ranks"]:
        return "no training step was detected (backward pass, optimizer step or DataLoader)"
    steps = record["ranks"][0]["steps"]
    count = steps["count"] or steps.get("optimizer_steps", 0)
    if not count:
        return (
            "steps are detected by a DataLoader, a torch optimizer, a profiler's step() or eight backward passes; "
            "none was detected, and the script ended before a time window could be recorded"
        )
    after = f"the script ended after {count:,} step{'s' * (count != 1)}, before"
    if args.at_step:
        return f"{after} step {args.at_step:,}"
    if args.at_epoch:
        return f"{after} its epoch {args.at_epoch:,}"
    more = "; run 30 or more" if count < 30 else ""  # 3 to warm up, 20 to time, a window of 5
    return f"{after} they were timed and recorded{more}"


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text}: not a whole number")
    return int(text)


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(_count(part) for part in text.split(","))

"""`advisor run [options] script args…`: profiles a training script as it is."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.commands import _options

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
    capture.add_argument("--steps", type=_positive, metavar="N", default=0, help="training steps to profile")
    capture.add_argument("--warmup", type=_count, metavar="N", help="training steps to skip first")
    capture.add_argument("--stop-after-profile", action="store_true", help="end the script once its trace is complete")
    capture.add_argument("--no-lines", action="store_true", help="do not record the lines of the script")
    capture.add_argument("--memory", action="store_true", help="also record allocations (a larger trace)")
    capture.add_argument("--rank", type=_ranks, metavar="R,…", help="profile only these ranks")
    capture.add_argument("--no-calibrate", action="store_true", help="do not measure what ops and memory cost here")
    capture.add_argument("--python", metavar="PATH", help="the interpreter of the script (default: this one)")
    _options.add_report_options(parser)
    parser.set_defaults(handler=run, launcher=False)
    parse = parser.parse_known_args

    def parse_ours(words: Any = None, namespace: Any = None) -> Any:
        # argparse would look for our options among the script's: the line is cut before it sees it.
        ours, rest = split(list(words or ()), _with_value(parser))
        args, left = parse(ours, namespace)
        args.target = rest
        return args, left

    parser.parse_known_args = parse_ours  # type: ignore[method-assign,assignment]


def _with_value(parser: argparse.ArgumentParser) -> set[str]:
    """Our options that take the next word as their value."""
    return {name for action in parser._actions if action.nargs is None for name in action.option_strings}


def split(words: list[str], with_value: set[str]) -> tuple[list[str], list[str]]:
    """Our own options, and everything that belongs to the script: from the first word that is no option of ours on."""
    place = 0
    while place < len(words):
        word = words[place]
        if word in ("-", "--") or not word.startswith("-") or (word[:2] in ("-m", "-c") and word[:2] != "--"):
            break
        place += 2 if word in with_value else 1
    return words[:place], words[place:]


def run(args: argparse.Namespace) -> int:
    """Runs the script, then reports. The status is the script's own."""
    import tempfile

    from advisor.capture.inside.facts import secrets
    from advisor.capture.launcher import launch

    target = target_of(args.target, args.python)
    output = _options.output_of(args)
    _options.config_of(args)
    options = launch.Options(
        args.steps, args.warmup, args.stop_after_profile, not args.no_lines, args.memory, args.rank
    )
    python = target.command[0] if target.direct else sys.executable
    header: dict[str, Any] = {
        "command": secrets.mask(args.target),
        "environment": secrets.allowed(os.environ),
        "exit_status": None,
    }
    folder = Path(tempfile.mkdtemp(prefix="torch-advisor-"))
    publisher = _publisher(folder, header, output, args)
    try:
        ended = _captured(target, folder, options, publisher)
        header["exit_status"] = ended.status
        failed = _report(folder, output, args, header, python, publisher)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if ended.signal:
        return launch.end_as(ended)
    return ended.status or failed


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
        raise UsageError(f"{name} is a notebook; convert it to a script: jupyter nbconvert --to script {name}")
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


def _captured(target: Target, folder: Path, options: Options, publisher: Publisher | None) -> Ended:
    """Runs the script to its end with capture in it."""
    from advisor.capture.launcher import launch

    try:
        process = launch.start(target, folder, options)
    except OSError as failure:
        from advisor.errors import UsageError

        raise UsageError(f"{target.command[0]} cannot be started: {failure.strerror}") from failure
    return launch.wait(process, publisher.look) if publisher else launch.wait(process)


def _report(
    folder: Path,
    output: Output,
    args: argparse.Namespace,
    header: dict[str, Any],
    python: str,
    publisher: Publisher | None,
) -> int:
    """Moves the traces home and reports on them; our own failures are one line and status 4."""
    from advisor.capture.launcher import launch, run_file
    from advisor.commands.analyze import finish
    from advisor.errors import FAILED, AdvisorError
    from advisor.report import module_work

    try:
        record = launch.assemble(folder, header)
        if not any(rank["files"] for rank in record["ranks"]):
            if publisher:
                publisher.withdraw()
            return _nothing(record, args)
        module_work.add_flops(folder, record)
        _add_preflight(record, python)
        if not args.no_calibrate:
            _add_calibration(record, python, quiet=args.quiet)
        run_file.write(folder, record)
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


def _add_preflight(record: dict[str, Any], python: str) -> None:
    """Says in run.json whether device events can be recorded, whether an accelerator stood unused, and of an old torch.

    Checked after the script: a process that brings up a device while it runs would disturb what is measured.
    """
    from advisor.capture.launcher import doctor, preflight

    found = preflight.check(python, os.environ)
    old = doctor.too_old(record["versions"].get("torch", ""))
    checks = [*found.checks, *([old] if old else [])]
    record["preflight"] = [{"id": one.id, "status": one.status, "message": one.message} for one in checks]
    for rank in record["ranks"]:
        settings = rank.get("settings")
        if settings and settings.get("accelerator_available") is None:
            settings["accelerator_available"] = found.accelerator
            settings["accelerator_name"] = found.name or None


def _add_calibration(record: dict[str, Any], python: str, *, quiet: bool) -> None:
    """Measures what ops, threads, memory and the device cost here, once for this machine; a failure is one line.

    After the script, so that it disturbs nothing; with the threads and variables of the first rank.
    """
    from advisor.calibration import machine, process
    from advisor.errors import AdvisorError

    first = next(rank for rank in record["ranks"] if rank["files"])
    devices = first.get("devices") or [{}]
    here = machine.here(
        python,
        record["versions"].get("torch", ""),
        (first.get("settings") or {}).get("threads"),
        devices[0].get("name", ""),
        os.environ | (first.get("environment") or {}),
    )
    try:
        measured, _ = process.obtain(python, here)
    except (AdvisorError, KeyboardInterrupt) as failure:
        if not quiet:
            text = str(failure) or "calibration: interrupted; figures of the table are used"
            print(f"advisor: {text}", file=sys.stderr)
        return
    for rank in record["ranks"]:
        rank["calibration"] = process.as_json(measured)


def _nothing(record: dict[str, Any], args: argparse.Namespace) -> int:
    """Says why there is no trace: 0 where there was nothing to profile, AdvisorError where capture failed."""
    from advisor.errors import AdvisorError

    notes = [note for rank in record["ranks"] for note in rank["notes"]]
    if notes:
        raise AdvisorError(f"nothing was profiled: {notes[0]}")
    if not args.quiet:
        why = "no training step was seen (a backward pass, an optimizer's step, a DataLoader)"
        if record["exit_status"]:
            why = "the script ended before its training steps could be recorded"
        elif record["ranks"]:
            steps = record["ranks"][0]["steps"]
            count = steps["count"] or steps.get("optimizer_steps", 0)
            more = "; run 30 or more" if count < 30 else ""  # 3 to warm up, 20 to time, a window of 5
            why = f"the script ended after {count} step{'s' * (count != 1)}, before they were timed and recorded{more}"
            if not count:
                why = (
                    "steps are detected by a DataLoader, a torch optimizer, a profiler's step() or eight backward "
                    "passes; none was seen, and the script ended before a time window could be recorded"
                )
        print(f"advisor: nothing was profiled: {why}", file=sys.stderr)
    return 0


def _positive(text: str) -> int:
    number = _count(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1")
    return number


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text}: not a whole number")
    return int(text)


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(_count(part) for part in text.split(","))

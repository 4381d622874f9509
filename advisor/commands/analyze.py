"""`advisor analyze PATH…`: the report of traces that exist already."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from advisor.commands import _options, _perfetto, _ranks, _several_jobs, _terminal, _what_if_ranks
from advisor.commands._options import Output
from advisor.inputs.output import claim_folder, release, write_file
from advisor.places.place import place

if TYPE_CHECKING:
    from advisor.commands._perfetto import ReadRank
    from advisor.commands._ranks import Reading
    from advisor.engine.config import Config
    from advisor.engine.reduced_form import Reduced
    from advisor.engine.registry import Rules
    from advisor.inputs.jobs import Job
    from advisor.model import Health, Report


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "analyze",
        help="report on existing traces",
        description="Reports on PyTorch profiler traces, or on files written by `advisor reduce`: of one rank, or of "
        "all ranks of one job.",
        epilog="example: advisor analyze trace.pt.trace.json.gz --format markdown",
        allow_abbrev=False,
    )
    parser.add_argument("paths", nargs="+", type=place, metavar="PATH", help="a trace, or a folder of traces")
    parser.add_argument("--each", action="store_true", help="write one report per job if there are several")
    parser.add_argument(
        "--what-if-gpu",
        action="append",
        default=[],
        metavar="NAME",
        help="estimate step time on another GPU (H100); repeatable",
    )
    parser.add_argument(
        "--what-if-ranks",
        type=_what_if_ranks.numbers,
        default=(),
        metavar="N,…",
        help="estimate step time on other numbers of ranks: 64,256",
    )
    parser.add_argument(
        "--window",
        type=_options.positive,
        default=0,
        metavar="N",
        help="analyze recorded window N (default: main loop)",
    )
    parser.add_argument(
        "--ranks", default="", metavar="LIST", help="ranks that --format perfetto draws, such as 0,8-11"
    )
    _ranks.add_options(parser)
    _ranks.add_detail(parser)
    _options.add_report_options(parser)
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Analyses one job, or each of several with --each."""
    rules = loaded_rules()
    from advisor.errors import UsageError
    from advisor.inputs import jobs

    config = _options.config_of(args)
    output = _options.output_of(args, (_perfetto.FORMAT,))
    drawn = _perfetto.chosen(args.ranks)
    if drawn and _perfetto.FORMAT not in output.formats:
        raise UsageError("--ranks chooses what --format perfetto draws; add --format perfetto -o FILE.json.gz")
    if args.what_if_gpu:
        _check_devices(args.what_if_gpu)
    _check_target(output, args.paths)
    found = jobs.find(args.paths)
    if len(found) > 1 and not args.each:
        raise UsageError(_several_jobs.in_words(found))
    found = [jobs.windowed(job, args.window) if args.window else jobs.where_it_trains(job) for job in found]
    homes = {path.resolve() for path in args.paths if isinstance(path, Path) and path.is_dir()}
    for job, target in zip(found, _targets(output, found), strict=True):
        read, said = _read(job, config, rules, _ranks.reading_of(args), gpus=args.what_if_gpu)
        report = _joined(job, read, said, (rules, config), gpus=args.what_if_gpu, detail=args.detail)
        if args.what_if_ranks:
            report = _what_if_ranks.added(report, [one.result for one in read], args.what_if_ranks)
        folder = target.folder
        if folder and not (job.run and folder.resolve() in homes):
            # A run's own folder is added to; any other is made anew.
            folder = claim_folder(folder)
        made = {}
        if _perfetto.FORMAT in target.formats:
            # Plain text on stdout and in a file that is not called .gz.
            pack = target.file.suffix.lower() == ".gz" if target.file else not target.stdout
            made[_perfetto.FORMAT] = _perfetto.trace_of(read, report, drawn, pack=pack, quiet=args.quiet)
        deliver(report, replace(target, folder=folder), sys.stdout, args, made)
    return 0


def finish(folder: Path, output: Output, args: argparse.Namespace) -> int:
    """The report of a run that `advisor run` has captured into `folder`; the summary goes to stderr.

    output: as `_options.output_of(args)` gave it before the script started, its folder (if any) being `folder`.
    Raises AdvisorError when nothing was captured or the report cannot be written.
    """
    rules = loaded_rules()
    from advisor.commands._ranks import Reading
    from advisor.engine import reduced_form
    from advisor.errors import AdvisorError
    from advisor.inputs import jobs

    job = jobs.where_it_trains(jobs.find([folder])[0])
    unwritten: list[str] = []

    def keep(one: Reduced) -> None:
        # What another node's ranks are compared with: only this has to travel. The report does not depend on it.
        if output.folder is not None and one.result.facts is not None and not unwritten:
            try:
                write_file(
                    folder / reduced_form.file_name(one.origin),
                    reduced_form.encode(one.result, one.origin),
                    replace=True,
                )
            except AdvisorError as failure:
                unwritten.append(str(failure))

    report = report_of(job, _options.config_of(args), rules, Reading(args.quiet), keep=keep)
    deliver(report, output, sys.stderr, args)
    for line in unwritten:
        print(f"advisor: {line}", file=sys.stderr)
    return 0


def loaded_rules() -> Rules:
    """The rules, and with them all modules that a report is made by."""
    from advisor.engine.startup_gc import for_good
    from advisor.trace.read.allocator import import_numpy

    with for_good():
        import_numpy()  # before another import does
        from advisor.engine import engine, registry  # noqa: F401
        from advisor.inputs import jobs  # noqa: F401
        from advisor.trace.read import load  # noqa: F401

        return registry.load_rules()


def _check_target(output: Output, read: Sequence[object]) -> None:
    """Raises UsageError where the report would take the place of what it is made from."""
    from advisor.errors import UsageError

    target = output.file
    if (
        target
        and target.exists()
        and any(isinstance(one, Path) and one.exists() and one.samefile(target) for one in read)
    ):
        raise UsageError(f"--output {target} is what is to be read; name another file")


def _check_devices(names: Sequence[str]) -> None:
    from advisor.report.what_if import known_device

    for name in names:
        known_device(name)


def report_of(
    job: Job,
    config: Config,
    rules: Rules,
    reading: Reading,
    *,
    gpus: Sequence[str] = (),
    detail: Sequence[int] = (),
    keep: Callable[[Reduced], None] | None = None,
) -> Report:
    """Reads the ranks of a job and analyses them. gpus: other accelerators that were asked about; keep: told each rank.

    detail: ranks to show in full. Raises InputError where no rank can be read, UsageError where one of `detail` is not
    there.
    """
    read, said = _read(job, config, rules, reading, gpus=gpus, keep=keep)
    return _joined(job, read, said, (rules, config), gpus=gpus, detail=detail)


def _read(
    job: Job,
    config: Config,
    rules: Rules,
    reading: Reading,
    *,
    gpus: Sequence[str] = (),
    keep: Callable[[Reduced], None] | None = None,
) -> tuple[list[ReadRank], list[Health]]:
    """The ranks of a job in their order, and what is to be said of those that could not be read."""
    from advisor.engine import engine
    from advisor.engine.rank_files import Asked, aligned
    from advisor.errors import InputError

    files = [_ranks.file_of(trace, job.run) for trace in job.traces]
    asked, single = Asked.of(config, gpus), engine.rules_of_ranks(rules, config)
    found: dict[int, Reduced] = {}
    failed: dict[int, str] = {}
    for index, one in _ranks.read(files, asked, rules, config, reading):
        if isinstance(one, str):
            failed[index] = one
            continue
        found[index] = one.with_result(aligned(one.result, single))
        if keep is not None:
            keep(one)
    if not found:
        raise InputError(failed[min(failed)])
    ranks = [found[index] for index in sorted(found)]
    said = _ranks.said_of(ranks, [_ranks.in_words(files[index], failed[index]) for index in sorted(failed)], asked)
    return [_perfetto.ReadRank(files[index], found[index].result) for index in sorted(found)], list(said)


def _joined(
    job: Job,
    read: Sequence[ReadRank],
    said: Sequence[Health],
    chosen: tuple[Rules, Config],
    *,
    gpus: Sequence[str] = (),
    detail: Sequence[int] = (),
) -> Report:
    """The report of a job from its ranks. chosen: rules, and their configuration; detail: ranks to show in full."""
    from advisor.engine import engine

    results = [one.result for one in read]
    _ranks.check_detail(detail, [one.summary.rank for one in results])
    report = engine.joined(results, *chosen, job.run, (*job.health, *said), detail)
    return _with_gpus(report, gpus)


def _with_gpus(report: Report, gpus: Sequence[str]) -> Report:
    """The report with a sentence for each GPU that was asked about where a reduced form cannot answer."""
    from msgspec import structs

    from advisor.model import WhatIf

    if len(report.what_if) == len(gpus):
        return report
    rank = report.run.reference_rank
    why = f"cannot be estimated from a reduced trace; pass the trace of rank {rank}"
    return structs.replace(report, what_if=tuple(WhatIf(name, f"The step time on {name} {why}.") for name in gpus))


def _targets(output: Output, found: list[Job]) -> list[Output]:
    """Where each job's report goes: as asked for one job, a folder of its own for each of several."""
    from advisor.errors import UsageError

    if len(found) == 1 or output.stdout:
        return [output] * len(found)
    if output.file:
        raise UsageError(f"--output {output.file} is one file, but there are {len(found)} jobs; name a folder")
    base = output.folder or Path(_options.DEFAULT_FOLDER)
    names = [_options.safe_name(job.name) for job in found]
    return [
        replace(output, folder=base / (name if names.count(name) == 1 else f"{name}-{number}"))
        for number, name in enumerate(names)
    ]


def deliver(
    report: Report, output: Output, stream: TextIO, args: argparse.Namespace, made: Mapping[str, bytes] | None = None
) -> None:
    """Writes the asked-for formats and sends to the sinks; where files were made, the summary goes to `stream`.

    made: what is written of formats that no reporter makes.
    """
    _write(report, output, stream, args, made or {})
    if args.to:
        from advisor.sinks import delivery

        for line in delivery.send(report, _options.sinks_of(args), os.environ):
            print(f"advisor: {line}", file=sys.stderr)


def _to_stdout(content: bytes) -> None:
    """As it is, in UTF-8, whatever the terminal's encoding: a report is a file for whoever reads it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
    else:
        sys.stdout.write(content.decode())


def _write(report: Report, output: Output, stream: TextIO, args: argparse.Namespace, made: Mapping[str, bytes]) -> None:
    from advisor.engine import registry

    texts = {
        name: made[name] if name in made else registry.load_reporter(name)(report).encode("utf-8", "backslashreplace")
        for name in output.formats
    }
    if output.stdout:
        _to_stdout(texts[output.formats[0]])
        return
    if output.file:
        older = write_file(output.file, texts[output.formats[0]], replace=False)
        if older is not None and not args.quiet:
            print(f"advisor: what was {output.file} is {older} now", file=sys.stderr)
        written = [output.file]
    else:
        folder = output.folder or Path(_options.DEFAULT_FOLDER)
        written = [folder / f"report{_options.SUFFIXES.get(name, '.' + name)}" for name in output.formats]
        for path, text in zip(written, texts.values(), strict=True):
            write_file(path, text, replace=True)
        release(folder)
    if not args.quiet:
        summary = registry.load_reporter("text")(report)
        _terminal.show(summary, written, stream, color=not args.no_color)

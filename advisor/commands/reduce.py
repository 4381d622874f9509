"""`advisor reduce TRACE… -o FOLDER`: what the comparison of ranks needs of each, in a small file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from advisor.commands import _options, _ranks
from advisor.places.place import place


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "reduce",
        help="reduce the traces of many ranks to small files",
        description="Writes a small file for each trace. `advisor analyze` reads it instead of the trace, so the "
        "traces of a large job need not be moved.",
        epilog='example: srun advisor reduce traces/ -o reduced/ --shard "$SLURM_PROCID/$SLURM_NTASKS"',
        allow_abbrev=False,
    )
    parser.add_argument("paths", nargs="+", type=place, metavar="PATH", help="a trace, or a folder of traces")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="folder for the small files")
    parser.add_argument(
        "--shard",
        type=_shard,
        default=(0, 1),
        metavar="I/N",
        help="reduce only every Nth trace, starting at the Ith (from 0)",
    )
    _ranks.add_options(parser)
    group = parser.add_argument_group("rules")
    group.add_argument("--select", action="append", default=[], metavar="RULE,…", help="use only these rules")
    group.add_argument("--ignore", action="append", default=[], metavar="RULE,…", help="do not use these rules")
    _options.add_common_options(group)
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Reduces the traces of this shard. What fails is named; FAILED where a file cannot be written, or none was."""
    from advisor.commands.analyze import loaded_rules

    rules = loaded_rules()
    from advisor.engine import reduced_form
    from advisor.engine.rank_files import Asked
    from advisor.errors import FAILED, OK, AdvisorError
    from advisor.inputs import jobs
    from advisor.inputs.output import write_file

    config = _options.config_of(args)
    found, aside = jobs.each(args.paths)
    index, number = args.shard
    files = [_ranks.file_of(trace, run) for trace, run in found[index::number]]
    # What no shard can read, one of them says.
    failed = [item.message for item in aside] if index == 0 else []
    written: dict[Path, int] = {}
    full = False
    for at, one in _ranks.read(files, Asked.of(config), rules, config, _ranks.reading_of(args)):
        if isinstance(one, str):
            failed.append(f"not reduced: {_ranks.in_words(files[at], one)}")
            continue
        target = args.output / reduced_form.file_name(one.origin)
        if target in written:
            # The first in order counts, whichever was read first.
            other = files[max(at, written[target])].path
            failed.append(f"not reduced: {other}: a second trace of rank {one.origin.rank} with the same name")
        if at <= written.get(target, at):
            try:
                write_file(target, reduced_form.encode(one.result, one.origin), replace=True)
            except AdvisorError as failure:
                # A full disk stays full: the rest is not even read.
                full = True
                failed.append(str(failure))
                break
            written[target] = at
    for line in sorted(failed):
        print(f"advisor: {line}", file=sys.stderr)
    if not args.quiet:
        size = sum(path.stat().st_size for path in written)
        of = f" ({index + 1} of {number} shards)" if number > 1 else ""
        print(f"{len(written)} of {len(files)} traces reduced{of}: {args.output}, {size / 1e3:.0f} KB")
    return FAILED if full or (files and not written) else OK


def _shard(text: str) -> tuple[int, int]:
    index, slash, number = text.partition("/")
    if not slash or not index.isdigit() or not number.isdigit() or int(index) >= int(number):
        raise argparse.ArgumentTypeError(f"{text}: must be this task's number and the number of tasks, 0/8 to 7/8")
    return int(index), int(number)

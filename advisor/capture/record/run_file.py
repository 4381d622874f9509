"""run.json: its content as structs, and how it is read."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from advisor.capture.record.dataflow import Dataflow, JudgedOps
from advisor.capture.record.rank import RankRecord
from advisor.errors import InputError
from advisor.places.place import Place

SCHEMA = "torch-advisor/run"
VERSION = 1


class RunRecord(msgspec.Struct, frozen=True):
    """run.json."""

    schema: str = SCHEMA
    version: int = VERSION
    command: list[str] = []
    versions: dict[str, str] = {}
    environment: dict[str, str] = {}  # an allow-list, never the whole environment
    exit_status: int | None = None  # None while the script is running
    preflight: list[dict[str, str]] = []  # {id, status, message}
    ranks: list[RankRecord] = []


def read(path: Place) -> RunRecord:
    """run.json as structs.

    Raises InputError (one line) for a damaged or newer file.
    """
    try:
        record = msgspec.json.decode(path.read_bytes(), type=RunRecord)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as failure:
        raise InputError(f"{path}: not a readable run.json ({failure}); run `advisor run` again") from failure
    if record.version > VERSION:
        raise InputError(f"{path}: written by a newer torch-advisor (version {record.version}); upgrade to read it")
    ranks = [_with_dataflow(path.parent, rank) for rank in record.ranks]
    return msgspec.structs.replace(record, ranks=ranks)


def _with_dataflow(folder: Place, rank: RankRecord) -> RankRecord:
    """The rank's record with the paths of its dataflow files, which are always next to run.json."""
    later = [msgspec.structs.replace(one, dataflow=_beside(folder, one.dataflow)) for one in rank.later]
    rank = msgspec.structs.replace(rank, dataflow=_beside(folder, rank.dataflow), later=later)
    if rank.reused is not None and rank.reused.file:
        why = (
            "the record of which tensors ops read is from an earlier version; capture the run again with `advisor run`"
        )
        rank = msgspec.structs.replace(rank, reused=JudgedOps(why=why))
    return rank


def _beside(folder: Place, known: Dataflow | None) -> Dataflow | None:
    if known is None or not known.file:
        return known
    return msgspec.structs.replace(known, file=os.fspath(folder / Path(known.file).name))

"""Which library distributes a training, told from rows, modules and process groups; never guessed."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from advisor.capture.record import RankRecord
from advisor.trace.events import Events, Trace

Name = Literal["", "ddp", "fsdp1", "fsdp2", "deepspeed", "megatron"]

# What the library's own rows (annotations, Python frames with their files) contain. DeepSpeed and Megatron wrap others,
# so they are looked for first.
_ROWS: tuple[tuple[Name, tuple[str, ...]], ...] = (
    ("deepspeed", ("deepspeed", "PartitionedParameterCoordinator", "DeepSpeedZeroOptimizer")),
    ("megatron", ("megatron/", "megatron.core")),
    ("fsdp2", ("FSDP::",)),
    ("fsdp1", ("FullyShardedDataParallel.",)),
    ("ddp", ("DistributedDataParallel.forward", "reducer::")),
)
# Classes of the outermost modules, as capture records them.
_MODULES: dict[str, Name] = {
    "DeepSpeedEngine": "deepspeed",
    "FullyShardedDataParallel": "fsdp1",
    "DistributedDataParallel": "ddp",
}
# Groups as Megatron describes them (megatron/core/parallel_state.py); torch's meshes are called mesh_….
_MEGATRON_GROUPS = ("MODEL_PARALLEL_GROUP", "DATA_PARALLEL_GROUP")
# Lookups in tables that are split over ranks are fbgemm's, whose ops torchrec calls.
_TABLES = ("fbgemm::", "fbgemm_gpu::", "split_embedding")
# torchrec's pipelines (TrainPipelineSparseDist) mark where they send the next batch's indices.
_PIPELINED = ("sparse_data_dist",)


class Library(Struct, frozen=True):
    """What distributes the training.

    name       "" if neither the trace nor the record contains it
    tables     embedding tables are looked up with fbgemm's ops, as torchrec's sharded modules do
    pipelined  torchrec exchanges the next batch's indices while this one is computed
    """

    name: Name
    tables: bool = False
    pipelined: bool = False

    @property
    def said(self) -> str:
        """Its name in a sentence."""
        return _SAID[self.name]

    @classmethod
    def compute(cls, trace: Trace, record: RankRecord | None) -> Library:
        """The library of this rank."""
        events = trace.events
        name = _by_record(record) or _by_rows(events) or _by_groups(trace)
        return cls(name, bool(events.named(*_TABLES).any()), bool(events.named(*_PIPELINED).any()))


_SAID: dict[Name, str] = {
    "": "an unnamed library",
    "ddp": "DistributedDataParallel",
    "fsdp1": "FullyShardedDataParallel",
    "fsdp2": "fully_shard",
    "deepspeed": "DeepSpeed",
    "megatron": "Megatron",
}


def _by_record(record: RankRecord | None) -> Name:
    if record is None:
        return ""
    modules = ((record.model or {}).get("modules") or []) if record.model else []
    kinds = {str(one.get("kind")) for one in modules if isinstance(one, dict)}
    if "DeepSpeedEngine" in kinds:
        return "deepspeed"
    if record.settings.fsdp:
        return "fsdp2" if record.settings.fsdp.get("kind") == "FSDP2" else "fsdp1"
    if record.settings.ddp:
        return "ddp"
    return next((name for kind, name in _MODULES.items() if kind in kinds), "")


def _by_rows(events: Events) -> Name:
    return next((name for name, texts in _ROWS if events.named(*texts).any()), "")


def _by_groups(trace: Trace) -> Name:
    purposes = [group.purpose for group in trace.meta.groups]
    return "megatron" if any(text in one for one in purposes for text in _MEGATRON_GROUPS) else ""

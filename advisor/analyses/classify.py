"""What a name says: the one place where names of kernels, ops and calls are told apart."""

from __future__ import annotations

import re

import numpy as np

from advisor.trace.events import Events, Mask

# Kernel, op and annotation names of all eras and libraries. Short words need a border: "mpi" stands in "compile", too.
_COMMUNICATION = re.compile(
    r"nccl|rccl|oneccl|hccl|xccl|nvshmem|rocshmem|deep_?ep\b|dpsk::ep\b|(?:inter|intra)node::|multimem_"
    r"|(?:one|two)_shot_all_?reduce|cross_device_reduce|(?<![a-z])gloo|(?<![a-z])mpi[:_]|(?<![a-z])ccl::",
    re.IGNORECASE,
)


def is_communication(name: str) -> bool:
    """Whether a kernel, op or annotation of this name is communication between ranks."""
    return _COMMUNICATION.search(name) is not None


def communication_rows(events: Events) -> Mask:
    """Which events have a name that is communication, whatever their category."""
    hits = np.fromiter((is_communication(name) for name in events.names), bool, len(events.names))
    return hits[events.name] if len(hits) else np.zeros(len(events), bool)

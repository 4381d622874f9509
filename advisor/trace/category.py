"""What kinds of events there are."""

from __future__ import annotations

from enum import IntEnum


class Category(IntEnum):
    """What an event is, across eras and vendors (`advisor.trace.dialects` maps the raw names)."""

    OTHER = 0
    CPU_OP = 1
    ANNOTATION = 2
    PYTHON = 3
    RUNTIME = 4  # host calls into CUDA, HIP, Level Zero …, runtime and driver
    KERNEL = 5
    MEMCPY = 6
    MEMSET = 7
    DEVICE_ANNOTATION = 8  # a copy of an annotation on the device's rows: never work
    SYNC = 9
    OVERHEAD = 10
    FOREIGN_DEVICE = 11  # rows of an accelerator whose work we cannot tell apart: MTIA, HPU …

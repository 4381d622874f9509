"""Every field of a trace that is read: its key in the file, what becomes of it, what it means.

A new field is a row here first. Then the schema decodes it, `read/native/rows.c` scans it, `read/extract.py` puts it
into a column, and `events.py` says what the column holds. `repair/event_by_event.py` follows this table by itself;
`tests/trace/test_fields.py` says which of the others lacks it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

# integer: a number, also written as text.  json: any JSON, kept as its text, each text once.
# text: a string.  grid: a list of numbers.  any: whatever JSON holds, read by who makes the column.
Kind = Literal["integer", "json", "text", "grid", "any"]


class Field(NamedTuple):
    """One field.

    key     in the row, or in its `args`
    name    of the attribute of the struct that the row is decoded to
    kind    of its values
    column  of `Events` or `MemoryEvents` that it ends in; several fields can be parts or spellings of one
    means   what the value is, with its unit
    """

    key: str
    name: str
    kind: Kind
    column: str
    means: str


# Of a complete event, `ph` "X"; `args` holds the fields of ARGS.
ROW = (
    Field("ts", "ts", "integer", "start_ns", "start, µs"),
    Field("dur", "dur", "integer", "dur_ns", "duration, µs"),
    Field("name", "name", "text", "name", "op, kernel, runtime call, or `file(line): function` of a Python frame"),
    Field("cat", "cat", "text", "category", "category, in the spelling of its era and vendor"),
    Field("pid", "pid", "any", "thread", "process, or device of a device row"),
    Field("tid", "tid", "any", "thread", "thread, or stream of a device row"),
)

ARGS = (
    Field("External id", "external", "integer", "external_id", "of an op, and of the calls and device rows it caused"),
    Field("external id", "external_2021", "integer", "external_id", "the same, in the spelling of 2021"),
    Field("correlation", "correlation", "integer", "correlation", "of a runtime call and the device row it launched"),
    Field("device", "device", "integer", "device", "index of the device"),
    Field("stream", "stream", "integer", "stream", "id of the stream on that device"),
    Field("bytes", "bytes", "integer", "bytes", "size of a copy or memset, bytes"),
    Field("grid", "grid", "grid", "blocks", "launch grid [x, y, z] of a kernel; the column holds their product"),
    Field("Input Dims", "dims", "json", "dims", "shapes of the inputs of an op, elements"),
    Field("Input dims", "dims_2021", "json", "dims", "the same, in the spelling of 2021"),
    Field("Input type", "dtypes", "json", "dtypes", "dtypes of the inputs of an op"),
    Field("Input Strides", "strides", "json", "strides", "strides of the inputs of an op, elements"),
    Field("Concrete Inputs", "values", "json", "values", "arguments of an op that are no tensors"),
    Field("Sequence number", "sequence", "integer", "sequence", "shared by a forward op and its backward node"),
    Field("Fwd thread id", "forward", "integer", "forward_thread", "thread of the forward op of a backward node"),
    Field("Python id", "python_id", "integer", "python_id", "id of a Python frame"),
    Field("Python parent id", "python_parent", "integer", "python_parent", "`Python id` of the frame that called it"),
    Field("Call stack", "stack", "text", "stack", "Python lines that led to an op, innermost first, joined by `;`"),
    Field("Collective name", "collective", "text", "collective", "kind of collective, as `allreduce`"),
    Field("dtype", "dtype", "any", "collective", "dtype of its elements"),
    Field("In msg nelems", "in_elements", "any", "collective", "elements that a rank gives"),
    Field("Out msg nelems", "out_elements", "any", "collective", "elements that a rank gets"),
    Field("Group size", "group_size", "any", "collective", "ranks of its process group"),
    Field("Process Group Name", "group", "any", "collective", "name of its process group"),
    Field("Seq", "collective_sequence", "any", "collective", "number of the collective in its process group"),
    Field("Process Group Description", "purpose", "any", "collective", "what its process group was made for"),
    Field("Dst Rank", "sends_to", "any", "collective", "rank of the job that a send goes to"),
    Field("Src Rank", "receives_from", "any", "collective", "rank of the job that a receive is from"),
    Field("wait_on_stream", "waited_stream", "integer", "waited", "stream whose event a synchronisation waited for"),
    Field(
        "wait_on_cuda_event_record_corr_id",
        "waited_event",
        "integer",
        "waited",
        "`correlation` of the call that recorded that event",
    ),
)

# `args` of a `[memory]` instant.
MEMORY = (
    Field("Bytes", "bytes", "integer", "bytes", "bytes allocated; freed where negative"),
    Field("Total Allocated", "allocated", "integer", "total_allocated", "bytes of all living tensors after it"),
    Field("Total Reserved", "reserved", "integer", "total_reserved", "bytes that the allocator holds after it"),
    Field("Device Type", "device_type", "integer", "device_type", "0: CPU, 1: CUDA, others as c10::DeviceType"),
    Field("Device Id", "device", "integer", "device", "index of the device"),
    Field("Addr", "address", "integer", "address", "address of the block: that of a free equals its allocation's"),
)

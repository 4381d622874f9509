"""TensorBoard: an event file with the figures and the findings as a table of Markdown, written without torch."""

from __future__ import annotations

import time
from pathlib import Path

from advisor.sinks.delivery import COLUMNS, Delivery, figures, rows


def send(delivery: Delivery) -> str:
    """Writes to a new folder below TENSORBOARD_LOGDIR (`runs`), with the page beside it. Returns where it is."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    root = Path(delivery.environment.get("TENSORBOARD_LOGDIR", "runs"))
    folder = root / f"torch-advisor-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**9:09d}"
    values = [Summary.Value(tag=tag, simple_value=value) for tag, value in figures(delivery.report).items()]
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    text = TensorProto(dtype=DT_STRING, string_val=[_table(delivery).encode()], tensor_shape=shape)
    values.append(Summary.Value(tag="advisor/findings_table", metadata=metadata, tensor=text))
    writer = EventFileWriter(str(folder))
    try:
        writer.add_event(Event(wall_time=time.time(), step=0, summary=Summary(value=values)))
    finally:
        writer.close()
    (folder / "report.html").write_bytes(delivery.page.read_bytes())
    return f"written to {folder}"


def _table(delivery: Delivery) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    for row in rows(delivery.report):
        cells = ["" if one is None else f"{one:.3g}" if isinstance(one, float) else one for one in row]
        lines.append(f"| {' | '.join(cell.replace('|', '¦') for cell in cells)} |")
    return "\n".join(lines)

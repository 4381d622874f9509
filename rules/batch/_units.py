"""What the rows of a batch are: samples, or the tokens of samples that products take as rows of their own."""

from __future__ import annotations

import numpy as np

from advisor.api import Category, Price, dims_of, sizes

_ATTENTION = ("scaled_dot_product", "flash_attn", "_flash_attention_forward", "_efficient_attention_forward")


def unit(price: Price, batch: int) -> str:
    """ "row" where the trace shows that so many rows are not samples, else "sample".

    It shows that in a tensor whose first two dimensions are such rows together, while no tensor has as many sequences;
    or in look-ups of so many single tokens beside attention, which packed sequences have.
    """
    events = price.ops.events
    ops = events.of(Category.CPU_OP) & price.ops.links.inside & (events.dims >= 0)
    _, first = np.unique(events.dims[ops], return_index=True)
    merged = False
    for row in np.flatnonzero(ops)[first].tolist():
        every = dims_of(events, row)
        for shape in (sizes(every, at) for at in range(len(every))):
            if len(shape) > 2 and shape[0] == batch:
                return "sample"
            merged |= len(shape) > 2 and shape[1] > 1 and shape[0] * shape[1] == batch
    looked_up = np.flatnonzero(ops & events.exactly("aten::embedding"))
    packed = any(sizes(dims_of(events, row), 1) == (batch,) for row in looked_up.tolist())
    return "row" if merged or (packed and events.named(*_ATTENTION).any()) else "sample"

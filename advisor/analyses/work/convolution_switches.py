"""The switch of cuDNN that each call of `aten::_convolution` is given, where the settings of a run were not recorded.

Its last arguments are those of `torch.backends.cudnn` as the call found them: benchmark, deterministic (also where
`use_deterministic_algorithms` asks for it), enabled, allow_tf32 (ATen's Convolution.cpp).
"""

from __future__ import annotations

import json

import numpy as np
from msgspec import Struct

from advisor.computed import Missing
from advisor.trace.events import Trace

_OP = "aten::_convolution"
# input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, and four switches.
_ARGUMENTS, _DETERMINISTIC = 13, 10


class ConvolutionSwitches(Struct, frozen=True):
    """deterministic: whether every recorded convolution had to use a deterministic algorithm."""

    deterministic: bool

    @classmethod
    def compute(cls, trace: Trace) -> ConvolutionSwitches:
        """Raises Missing where the trace has no convolution with its plain arguments."""
        events = trace.events
        values = events.values[events.exactly(_OP)]
        given = [_given(events.values_table[value]) for value in np.unique(values[values >= 0]).tolist()]
        known = [one[_DETERMINISTIC] == "True" for one in given if len(one) == _ARGUMENTS]
        if not known:
            raise Missing("the trace has no convolution with its arguments; record with record_shapes=True")
        return cls(all(known))


def _given(text: str) -> list[str]:
    """The plain arguments of a call as they were written; empty where they cannot be read."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [str(one) for one in found] if isinstance(found, list) else []

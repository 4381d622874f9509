"""Observers of quantization that sort activations into histograms, element by element of their bounds."""

from __future__ import annotations

from msgspec.structs import replace

from advisor.api import Finding, Fix, RankRecord

from ..shared._places import first_of, set_at

_HISTOGRAM = "HistogramObserver"
# docs.pytorch.org/docs/stable/generated/torch.ao.quantization.observer.HistogramObserver.html; the QAT configurations
# that `get_default_qat_qconfig` returns observe moving averages (torch/ao/quantization/qconfig.py).
_RANGES = Fix(
    "Observe activations by moving averages of their range while training",
    "numerics",
    "FakeQuantize.with_args(observer=HistogramObserver, quant_min=0, quant_max=127)",
    "FakeQuantize.with_args(observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=127)",
)


def of_observers(found: Finding, record: RankRecord | None) -> Finding:
    """A finding of numbers that a library reads, told as its histograms' where the model has observers of that kind."""
    modules = ((record and record.model) or {}).get("modules", [])
    many = sum(one.get("kind") == _HISTOGRAM for one in modules)
    if not many or record is None:
        return found
    made = set_at(record.settings, "histogram_observer")
    message = f"{found.message} The model has {many} modules of class `{_HISTOGRAM}`, which are meant for calibration."
    return replace(found, message=message, fix=_RANGES, where=first_of(made, found.where))

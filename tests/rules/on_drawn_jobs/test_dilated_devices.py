"""A step that is bound by its GPU, recorded by a profiler that made the host half as slow again.

Profiling stretches the host, not kernels: what a fix of a kernel or a copy saves is the same µs as in the step that
nobody recorded. Each step is drawn twice: as it is, and with the host's part stretched.
"""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from advisor.analyses.base.gpu_busy import GpuBusy
from advisor.analyses.base.scale import Scale
from advisor.analyses.costs.replay import Replay
from advisor.analyses.step.breakdown import Breakdown
from advisor.api import SYNC, Drawing, Ev, Example, Finding, Price, draw, edits
from advisor.engine.registry import load_rules
from advisor.testing import computed, run_example

# In units of 100 µs: ten ops, a kernel of 622 µs each, and a wait for the last. Three of the ten are at fault.
_PLAIN, _STRETCHED = 64, 96
_UNPROFILED = {"steps": {"unprofiled_us": [6400.0] * 20, "source": "loader"}}
_FLOATS = {"dims": [[1 << 22], [1 << 22]], "dtypes": ["float", "float"]}
_IMAGES = {"dims": [[16, 16, 200, 200], [16], [16], [16], [16]], "dtypes": ["float"] * 5}
_PRODUCT = {
    "dims": [[4096, 243], [243, 50257]],
    "dtypes": ["c10::BFloat16"] * 2,
    "args": {"Input Strides": [[243, 1], [50257, 1]]},
}

# rule, op, kernel or copy
WORK = {
    "slow-kernels": (
        Ev("aten::add", **_FLOATS),
        Ev("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<AddFunctor>>", "kernel"),
    ),
    "idle-multiprocessors": (
        Ev("aten::native_batch_norm", **_IMAGES),
        Ev("void at::native::batch_norm_collect_statistics_kernel<InvStd>", "kernel", args={"grid": [16, 1, 1]}),
    ),
    "odd-sizes": (
        Ev("aten::mm", **_PRODUCT),
        Ev("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>", "kernel"),
    ),
    "unfused-elementwise": (Ev("aten::mul"), Ev("void at::native::vectorized_elementwise_kernel<4, rsqrt>", "kernel")),
    "layout-transposes": (
        Ev("aten::cudnn_convolution"),
        Ev("void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>", "kernel"),
    ),
    "fp32-matmul": (
        Ev("aten::mm", dims=[[512, 1024], [1024, 1024]], dtypes=["float", "float"]),
        Ev("ampere_sgemm_128x64_tn", "kernel"),
    ),
    "slow-bus": (
        Ev("aten::copy_", launches="memcpy"),
        Ev("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", bytes=2 << 20),
    ),
}


def drawn(op: Ev, work: Ev, *, stretched: bool) -> Drawing:
    """Three steps. As it is, the host launches the ten ops in half of the step; stretched, the GPU waits for each."""
    wide, ops = (_STRETCHED, 90) if stretched else (_PLAIN, 30)

    def lane(*boxes: tuple[str, int]) -> str:
        """Boxes of so many characters in each of the three steps."""
        inside = "".join(f"[{letter}{' ' * (length - 3)}]" for letter, length in boxes)
        return inside.ljust(wide) * 3

    kernels = ops if stretched else _PLAIN - 4
    fill = 6220 / (100 * kernels)
    text = f"step   {''.join(f'[{number}'.ljust(wide - 1) + ']' for number in (1, 2, 3))}\n"
    text += f"cpu    {lane(('A', ops * 7 // 10), ('B', ops * 3 // 10), ('S', wide - ops))}\n"
    text += f"gpu 7  {lane(('K', kernels * 7 // 10), ('L', kernels * 3 // 10))}"
    return draw(
        text,
        us=100,
        device="A100",
        A=Ev("aten::other", times=7, fill=0.9),
        B=replace(op, times=3, fill=0.9),
        S=SYNC,
        K=Ev("other_kernel", "kernel", times=7, fill=fill),
        L=replace(work, times=3, fill=fill),
    )


def found(rule: str, op: Ev, work: Ev, *, stretched: bool) -> Finding:
    facts = _UNPROFILED if stretched else None
    asked = next(one for one in load_rules().rules if one.id == rule)
    findings = run_example(asked, Example(rule, drawn(op, work, stretched=stretched), None, facts))
    assert len(findings) == 1, findings
    return findings[0]


def test_the_step_is_bound_by_its_gpu() -> None:
    op, work = WORK["layout-transposes"]
    known = computed(Example("", drawn(op, work, stretched=True), None, _UNPROFILED))
    assert known.get(Scale).step_us == 6400
    assert known.get(GpuBusy).share == pytest.approx(6220 / 6400)
    assert known.get(Breakdown).share("compute") == pytest.approx(6220 / 6400)
    assert sum(item.share for item in known.get(Breakdown).items) == pytest.approx(1)


@pytest.mark.parametrize("rule", WORK)
def test_kernels_and_copies_save_what_they_do_without_the_profiler(rule: str) -> None:
    plain, stretched = (found(rule, *WORK[rule], stretched=one) for one in (False, True))
    assert plain.saving is not None
    assert stretched.saving is not None
    assert stretched.saving.high_us == pytest.approx(plain.saving.high_us, rel=0.1)
    assert stretched.saving.low_us == pytest.approx(plain.saving.low_us, rel=0.1, abs=1)
    assert plain.saving.high_us > 500


def test_a_fifth_of_the_kernels_is_a_fifth_of_their_time_whatever_the_profiler_added() -> None:
    op, work = WORK["layout-transposes"]
    known = computed(Example("", drawn(op, work, stretched=True), None, _UNPROFILED))
    price, replay = known.get(Price), known.get(Replay)
    kernels = np.flatnonzero(price.ops.trace.device_work & price.ops.links.inside)
    saving = replay.saving(edits.scale(kernels, 0.8), how="")
    assert saving.low_us == pytest.approx(1244, rel=0.1)
    assert saving.high_us == pytest.approx(1244, rel=0.1)

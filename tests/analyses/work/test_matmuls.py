"""In which precision matrix work ran: by kernel names of every library and era, input types, switches and hardware."""

from __future__ import annotations

import json
from typing import Any

import pytest

from advisor.analyses.work.precision import is_matrix_op, is_matrix_work, of_inputs, stated
from advisor.api import Ev, Matmuls, RankRecord, Settings, draw
from advisor.computed import Computed, Missing
from advisor.report.metrics import measure
from advisor.trace.read.load import read_bytes

STATED = {
    "volta_sgemm_128x32_nt": "fp32",
    "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1": "fp32",
    "cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1": "fp32",
    "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int)": "fp32",
    "void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>(int)": "fp32",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(Params)": "fp32",
    "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(x)": "fp32",
    "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize128x64x8": "fp32",
    "ampere_sgemm_64x64_tn": "fp32",
    "volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_tn": "fp16",
    "volta_h884gemm_64x64_ldg8_nn": "fp16",
    "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn": "fp16",
    "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_tn": "fp16",
    "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32": "fp16",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::half_t>>(x)": "fp16",
    "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT": "fp16",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1": "bf16",
    "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>(Params)": "bf16",
    "void pytorch_flash::flash_bwd_kernel<Flash_bwd_kernel_traits<64, cutlass::bfloat16_t>>(x)": "bf16",
    "nvjet_tst_192x192_64x4_2x1_v_bz_coopA_NNT": "bf16",
    "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1": "bf16",
    "ampere_tf32_s1688gemm_128x64_ldg4_f2f_stages_64x2_tn": "tf32",
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16": "tf32",
    "cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4": "tf32",
    "ampere_dgemm_64x64_nn": "fp64",
    "Cijk_Ailk_Bljk_SB_MT64x64x16_SE_1LDSB0": "fp32",
    "Cijk_Alik_Bljk_HHS_BH_Bias_MT128x128x64": "fp16",
    "Cijk_Ailk_Bljk_BBS_BH_MT128x96x32": "bf16",
    "Cijk_Ailk_Bjlk_DB_MT64x64x16": "fp64",
    "nvjet_qqtst_128x128": "other",
    "nvjet_sm100_tst_32x64_64x16_4x1_v_bz_splitK_bias_TNT": "bf16",
    "nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT": "bf16",
    "nvjet_sm100_hsh_64x64_64x13_1x2_h_bz_TNT": "fp16",
    "nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_v_bz_bias_TNT": "other",
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90"
    "<2, cute::tuple<cute::C<1> >, 256, cutlass::bfloat16_t, float, cutlass::arch::Sm90, true>>>>(x)": "bf16",
    "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnBwdSm90<flash::CollectiveMainloopBwdSm90"
    "<2, 2, cutlass::half_t, float>>>>(x)": "fp16",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<"
    "cute::tuple<int, int, int>>, cutlass::gemm::collective::CollectiveMma<cutlass::float_e4m3_t>>>(x)": "other",
    "some_new_gemm_kernel_of_next_year": "unknown",
}
NO_MATRIX_WORK = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
    "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float)",
    "void cudnn::engines_precompiled::nchwToNhwcKernel<__nv_bfloat16, float>(x)",
    "cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)",
    "void fbgemm_gpu::permute_2D_lengths_kernel<int>(int)",
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float>(x)",
    "void split_embedding_backward_codegen_adagrad_unweighted_kernel_cta_per_row_1<float>(x)",
    "convert_fp32_to_bf16_kernel",
    "void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<8>>, 128, cutlass::bfloat16_t>>(x)",
    "void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<cute::C<64>>, cutlass::half_t>>(x)",
    "flash::prepare_varlen_num_blocks_kernel(int, int, int, const int *)",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)


@pytest.mark.parametrize(("name", "precision"), STATED.items())
def test_what_a_name_states(name: str, precision: str) -> None:
    assert is_matrix_work(name)
    assert stated(name) == precision


@pytest.mark.parametrize("name", NO_MATRIX_WORK)
def test_what_is_no_matrix_work(name: str) -> None:
    assert not is_matrix_work(name)


def test_ops_and_their_input_types() -> None:
    assert is_matrix_op("aten::addmm")
    assert is_matrix_op("aten::convolution_backward")
    assert is_matrix_op("aten::_scaled_dot_product_flash_attention_for_cpu")
    for name in ("aten::_grouped_mm", "aten::_scaled_mm_v2", "aten::_scaled_grouped_mm", "flash_attn_3::fwd"):
        assert is_matrix_op(name)
    assert is_matrix_op("flash_attn::_flash_attn_varlen_backward")
    assert not is_matrix_op("flash_attn_3::fwd_combine")
    assert not is_matrix_op("aten::convert")
    assert not is_matrix_op("aten::add_")
    assert of_inputs('["float", "float", "Scalar"]') == "fp32"
    assert of_inputs('["long int", "c10::BFloat16"]') == "bf16"
    assert of_inputs('["c10::Half"]') == "fp16"
    assert of_inputs('["", "Scalar"]') == "unknown"


def matmuls(
    device: str, kernel: str, dtypes: list[str] | None = None, op: str = "aten::mm", settings: Settings | None = None
) -> Computed:
    """A step whose device is busy for 600 µs, half of it with that kernel."""
    drawing = draw(
        """
        step   [1        ]
        cpu    [F ][A ]
        gpu 7  [K ][E ]
        """,
        us=100,
        device=device,
        F=Ev(op, dtypes=dtypes),
        A="aten::add",
        K=kernel,
        E="void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>",
    )
    record = RankRecord(settings=settings) if settings else None
    return Computed(trace=read_bytes(json.dumps(dict(drawing)).encode(), "drawn"), record=record)


def share(computed: Computed) -> float | None:
    return measure(computed)["fp32_matmul_share"].value


FLOAT = ["float", "float"]


def test_a_simt_kernel_is_fp32_whatever_else_is_known() -> None:
    computed = matmuls("A100", "ampere_sgemm_64x64_tn")
    assert share(computed) == pytest.approx(0.5)
    assert computed.get(Matmuls).evidence == "names"


def test_tf32_is_not_fp32() -> None:
    assert share(matmuls("A100", "ampere_tf32_s1688gemm_128x64_ldg4_f2f_tn", FLOAT)) == 0


def test_float_inputs_below_sm_80_are_fp32() -> None:
    """A V100 has no TF32, and a name that says nothing cannot change that."""
    computed = matmuls("V100", "some_gemm", FLOAT)
    assert share(computed) == pytest.approx(0.5)
    assert computed.get(Matmuls).evidence == "dtypes"


def test_float_inputs_on_an_mi300x_are_fp32_though_it_reports_major_9() -> None:
    assert share(matmuls("MI300X", "some_gemm", FLOAT)) == pytest.approx(0.5)


def test_float_inputs_on_ampere_are_unknown_until_the_switches_are_known() -> None:
    computed = matmuls("A100", "some_gemm", FLOAT)
    metric = measure(computed)["fp32_matmul_share"]
    assert (metric.value, metric.status) == (None, "not_measured")
    assert "unknown" in metric.why
    off = Settings(matmul_precision="highest", tf32_matmul=False, tf32_cudnn=True)
    assert share(matmuls("A100", "some_gemm", FLOAT, settings=off)) == pytest.approx(0.5)
    # The switch of convolutions is another one, and it is on by default.
    assert share(matmuls("A100", "some_gemm", FLOAT, "aten::cudnn_convolution", off)) == 0
    on = Settings(matmul_precision="high", tf32_matmul=True, tf32_cudnn=True)
    assert share(matmuls("A100", "some_gemm", FLOAT, settings=on)) == 0


def test_an_unknown_name_without_types_is_unknown_never_zero() -> None:
    assert share(matmuls("A100", "some_gemm")) is None


def test_a_kernel_of_a_matrix_op_counts_whatever_its_name() -> None:
    computed = matmuls("V100", "kernel_without_a_telling_name", ["c10::Half", "c10::Half"])
    assert computed.get(Matmuls).by_precision["fp16"] == pytest.approx(400)


def test_without_matrix_work_nothing_is_claimed() -> None:
    with pytest.raises(Missing, match="no matrix product"):
        matmuls("A100", "elementwise", op="aten::add").get(Matmuls)


def cpu(dtypes: list[str] | None) -> dict[str, Any]:
    return draw(
        "step  [1      ]\ncpu   [F ][R]",
        us=100,
        F=Ev("aten::addmm", dtypes=dtypes),
        R="aten::relu",
        shapes=dtypes is not None,
    )


def test_on_a_cpu_the_share_is_of_the_step() -> None:
    computed = Computed(trace=read_bytes(json.dumps(dict(cpu(FLOAT))).encode(), "drawn"))
    assert share(computed) == pytest.approx(400 / 900)
    assert not computed.get(Matmuls).on_device
    assert share(Computed(trace=read_bytes(json.dumps(dict(cpu(None))).encode(), "drawn"))) is None

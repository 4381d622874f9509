"""What rules say of torch's defaults and signatures, asked of the torch that is installed."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import complete

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def said_by(script: str) -> str:
    """What a fresh interpreter prints: switches are the process's own."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_precision_of_products_does_not_govern_convolutions() -> None:
    """fp32-matmul: convolutions may use TF32 by default, products may not, and one setting leaves the other alone."""
    script = """
import torch
b = torch.backends
print(b.cuda.matmul.allow_tf32, b.cudnn.allow_tf32)
torch.set_float32_matmul_precision("high")
print(b.cuda.matmul.allow_tf32, b.cudnn.allow_tf32)
torch.set_float32_matmul_precision("highest")
b.cudnn.allow_tf32 = False
torch.set_float32_matmul_precision("high")
print(b.cuda.matmul.allow_tf32, b.cudnn.allow_tf32)
"""
    assert said_by(script).split("\n") == ["False True", "True True", "True False"]


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="the newer API came with torch 2.9")
@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("b.cudnn.conv.fp32_precision = 'ieee'", (False, False)),
        *complete(("pass", (False, True)), ("b.cuda.matmul.fp32_precision = 'tf32'", (True, True))),
        *complete(("b.fp32_precision = 'ieee'", (False, False)), ("b.cudnn.allow_tf32 = False", (False, False))),
        ("b.cuda.matmul.allow_tf32 = True", (True, True)),
    ],
)
def test_both_apis_of_tf32_are_read(line: str, known: tuple[bool, bool]) -> None:
    """The older switches raise once a script has used the newer ones; capture knows what stands all the same."""
    script = f"""
import torch
b = torch.backends
{line}
from advisor.capture.inside.facts.probe import switches
found = switches()
print((found["tf32_matmul"], found["tf32_cudnn"]))
"""
    assert said_by(script) == str(known)


def test_amd_convolutions_get_channels_last_by_environment_alone() -> None:
    """layout-transposes: what the installed headers say; other versions have had it on for ROCm 7."""
    header = Path(torch.__file__).parent / "include" / "ATen" / "native" / "ConvUtils.h"
    if not header.exists():
        pytest.skip("this torch came without its headers")
    text = header.read_text("utf-8")
    if "miopen_conv_suggest_memory_format" not in text:
        pytest.skip("another version asks elsewhere")
    body = text[text.index("miopen_conv_suggest_memory_format") :][:900]
    assert 'check_env("PYTORCH_MIOPEN_SUGGEST_NHWC").value_or(false)' in body


def test_only_loader_workers_pin_in_a_thread_of_their_own() -> None:
    """pageable-copies: without workers `pin_memory=True` copies on the loop's own thread."""
    from torch.utils.data import dataloader

    alone = inspect.getsource(dataloader._SingleProcessDataLoaderIter._next_data)
    workers = inspect.getsource(dataloader._MultiProcessingDataLoaderIter)
    assert "pin_memory.pin_memory(data" in alone
    assert "_pin_memory_loop" in workers


def test_attention_masks_select_and_scale_is_the_root_of_the_width() -> None:
    """unfused-attention: the fix is what the op by op form computed, mask and scale included."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 8) for _ in range(3))
    mask = torch.ones(5, 5).tril()
    scale = 0.7
    scores = (q @ k.transpose(-2, -1)) * scale
    by_hand = scores.masked_fill(mask == 0, float("-inf")).softmax(-1) @ v
    attention = torch.nn.functional.scaled_dot_product_attention
    torch.testing.assert_close(attention(q, k, v, attn_mask=mask.bool(), scale=scale), by_hand)
    torch.testing.assert_close(attention(q, k, v), attention(q, k, v, scale=8**-0.5))
    torch.testing.assert_close(attention(q, k, v, is_causal=True), attention(q, k, v, attn_mask=mask.bool()))


def test_dropout_of_attention_does_not_ask_whether_a_module_trains() -> None:
    q = torch.ones(1, 1, 64, 8)
    with torch.no_grad():
        dropped = torch.nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    assert not torch.equal(dropped, q)


def test_a_mean_by_mask_is_the_mean_of_what_is_selected() -> None:
    """sync-in-loop: `torch.where(mask, x, 0)` alone has another mean."""
    losses, mask = torch.arange(8.0), torch.arange(8) % 3 == 0
    by_selection = losses[mask].mean()
    torch.testing.assert_close(torch.where(mask, losses, 0).sum() / mask.sum(), by_selection)
    assert torch.where(mask, losses, 0).mean() != by_selection


def test_ddp_broadcasts_buffers_and_has_buckets_of_25_mb_by_default() -> None:
    """exposed-communication, buffer-broadcasts: the arguments that their fixes name, and what stands without them."""
    ddp = inspect.signature(torch.nn.parallel.DistributedDataParallel.__init__).parameters
    assert "broadcast_buffers" in ddp
    assert ddp["broadcast_buffers"].default in (True, None)
    assert ddp["bucket_cap_mb"].default is None
    assert ddp["static_graph"].default is False
    if ddp["broadcast_buffers"].default is None:
        assert "forward_sync_buffers" in ddp
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    assert callable(default_hooks.bf16_compress_hook)


def test_fully_shard_has_what_the_fixes_name() -> None:
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("fully_shard is public from torch 2.6 on")
    given = inspect.signature(fsdp.fully_shard).parameters
    assert {"mesh", "reshard_after_forward", "mp_policy", "offload_policy"} <= set(given)
    policy = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    assert fsdp.MixedPrecisionPolicy().param_dtype is None
    assert policy.reduce_dtype is torch.bfloat16
    for name in ("set_modules_to_forward_prefetch", "set_modules_to_backward_prefetch", "set_requires_gradient_sync"):
        assert callable(getattr(fsdp.FSDPModule, name))


def test_the_older_fsdp_prefetches_in_ranges_of_their_own() -> None:
    """`late-shard-gathers` tells by them whether, and when, a backward pass gathers the next layer."""
    hooks = pytest.importorskip("torch.distributed.fsdp._runtime_utils")
    for hook, mode in ((hooks._pre_backward_hook, "pre"), (hooks._post_backward_reshard, "post")):
        source = inspect.getsource(hook)
        assert f'"FullyShardedDataParallel._{mode}_backward_prefetch"' in source
        assert "_prefetch_handle(state, handle, _PrefetchMode.BACKWARD)" in source
    assert '"FullyShardedDataParallel._pre_backward_hook"' in inspect.getsource(hooks._pre_backward_hook)


def test_forward_prefetch_of_the_older_fsdp_is_for_slow_hosts() -> None:
    fsdp = pytest.importorskip("torch.distributed.fsdp").FullyShardedDataParallel
    given = inspect.signature(fsdp.__init__).parameters
    assert given["forward_prefetch"].default is False
    assert given["backward_prefetch"].default.name == "BACKWARD_PRE"
    assert "only useful for CPU-bound workloads" in " ".join(inspect.getdoc(fsdp).split())


@pytest.mark.parametrize(
    ("context", "frozen", "conversions"),
    [
        (torch.enable_grad, False, 1),
        (torch.enable_grad, True, 2),
        (torch.no_grad, False, 1),
        (torch.inference_mode, False, 2),
    ],
)
def test_autocast_keeps_what_it_converts_for_weights_with_a_gradient_alone(
    context: type, frozen: bool, conversions: int
) -> None:
    """repeated-casts: a weight that is used twice in one context, and where its conversions lie."""
    layer = torch.nn.Linear(16, 16, bias=False).requires_grad_(not frozen)
    with torch.profiler.profile(record_shapes=True) as profile, context(), torch.autocast("cpu", torch.bfloat16):
        layer(layer(torch.randn(4, 16)))
    copies = [row for row in profile.events() if row.name == "aten::copy_" and row.input_shapes[0] == [16, 16]]
    assert len(copies) == conversions
    for row in copies:
        around = [row := row.cpu_parent for _ in range(3)]
        assert [one.name for one in around] == ["aten::_to_copy", "aten::to", "aten::linear"]
        assert around[-1].input_shapes[1] == [16, 16]


def test_a_fused_optimizer_takes_the_flag_of_a_grad_scaler_on_the_device() -> None:
    """sync-in-loop: `GradScaler.step` reads it for the others."""
    weight = torch.nn.Parameter(torch.ones(4))
    assert torch.optim.AdamW([weight], fused=True)._step_supports_amp_scaling  # type: ignore[attr-defined]
    assert not getattr(torch.optim.AdamW([weight]), "_step_supports_amp_scaling", False)
    assert "_step_supports_amp_scaling" in inspect.getsource(torch.amp.GradScaler.step)


def test_whether_a_gpu_only_emulates_bf16_can_be_asked() -> None:
    """emulated-bf16."""
    assert "including_emulation" in inspect.signature(torch.cuda.is_bf16_supported).parameters


@pytest.mark.skipif(not hasattr(torch.nn.attention, "flex_attention"), reason="not in this version of torch")
def test_flex_attention_has_no_backward_pass_for_cpus() -> None:
    """unfused-attention: scores that are capped have no fused kernel in training on a CPU."""
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 2, 128, 16, requires_grad=True)
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        flex_attention(q, q, q).sum().backward()


@pytest.mark.skipif(not hasattr(torch.nn.functional, "grouped_mm"), reason="it came with torch 2.10")
def test_a_grouped_product_takes_the_ends_of_its_groups() -> None:
    """launch-bound: experts as one product of tokens that are sorted by expert."""
    assert {"mat_a", "mat_b", "offs"} <= set(inspect.signature(torch.nn.functional.grouped_mm).parameters)

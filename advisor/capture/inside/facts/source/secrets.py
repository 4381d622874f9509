"""Command lines and environments without their secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

MASK = "***"
_NAMES = re.compile(
    r"(token(?!iz|s\b)|secret|passw(or)?d|passphrase|credential|api[-_]?key|access[-_]?key|private[-_]?key|auth(?!or)|(^|[-_])key$|bearer)",
    re.I,
)
_URL = re.compile(r"(?P<scheme>[a-zA-Z][\w+.-]*://)[^/@\s]+@")
# Tokens that say by their form what they are: Hugging Face, GitHub, OpenAI, Weights & Biases, AWS, Slack.
_FORMS = re.compile(
    r"\b(hf_[A-Za-z0-9]{8,}|gh[pousr]_[A-Za-z0-9]{8,}|sk-[\w-]{8,}|AKIA[A-Z0-9]{12,}|xox[a-z]-[\w-]{8,}|[a-f0-9]{40})\b"
)

# Settings that change speed; everything else in the environment is nobody's business.
ENVIRONMENT = [
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "GOMP_CPU_AFFINITY",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_MODULE_LOADING",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_MIOPEN_SUGGEST_NHWC",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_CUDNN_V8_API_DISABLED",
    "CUBLAS_WORKSPACE_CONFIG",
    "NCCL_DEBUG",
    "NCCL_P2P_DISABLE",
    "NCCL_IB_DISABLE",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_NTHREADS",
    "TORCH_NCCL_BLOCKING_WAIT",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_LOGS",
    "TORCH_CPP_LOG_LEVEL",
    "TORCH_SHOW_CPP_STACKTRACES",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "PYTORCH_NO_HIP_MEMORY_CACHING",
    "HIP_LAUNCH_BLOCKING",
    "AMD_SERIALIZE_KERNEL",
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "ONEDNN_VERBOSE",
    "DNNL_VERBOSE",
    "MKL_VERBOSE",
    "MKL_ENABLE_INSTRUCTIONS",
    "PYTHONDEVMODE",
    "PYTHONMALLOC",
    "PYTHONTRACEMALLOC",
    "TORCH_COMPILE_DISABLE",
    "TORCHDYNAMO_DISABLE",
    "TORCHINDUCTOR_MAX_AUTOTUNE",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
]


def mask(command: Sequence[str]) -> list[str]:
    """The command line with values that look like secrets replaced."""
    found, hide = [], False
    for word in command:
        if hide:
            hide = False
            if not word.startswith("-"):
                found.append(MASK)
                continue
        name, separator, _value = word.partition("=")
        if separator and _NAMES.search(name):
            found.append(f"{name}={MASK}")
            continue
        hide = word.startswith("-") and not separator and bool(_NAMES.search(word))
        found.append(cleaned(word))
    return found


def cleaned(text: str) -> str:
    """A text without what looks like a secret by its form: tokens of well-known services, passwords in addresses."""
    return _FORMS.sub(MASK, _URL.sub(rf"\g<scheme>{MASK}@", text))


def allowed(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that a report may show."""
    return {name: environment[name] for name in ENVIRONMENT if name in environment}

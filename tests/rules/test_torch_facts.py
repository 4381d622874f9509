"""What rules say of torch's defaults and signatures, asked of the torch that is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
        ("pass", (False, True)),
        ("b.cudnn.conv.fp32_precision = 'ieee'", (False, False)),
        ("b.cuda.matmul.fp32_precision = 'tf32'", (True, True)),
        ("b.fp32_precision = 'ieee'", (False, False)),
        ("b.cudnn.allow_tf32 = False", (False, False)),
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

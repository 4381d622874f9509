"""Copies of an XPU are known by the names that CUDA's have."""

from __future__ import annotations

import pytest

from advisor.trace.dialects import usual_name


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        ("Memcpy M2D (MEMORY(Unknown) -> DEVICE)", "Memcpy HtoD (Pageable -> Device)"),
        ("Memcpy H2D (HOST -> DEVICE)", "Memcpy HtoD (Pinned -> Device)"),
        ("Memcpy D2M (DEVICE -> MEMORY(Unknown))", "Memcpy DtoH (Device -> Pageable)"),
        ("Memcpy D2D (DEVICE -> DEVICE)", "Memcpy D2D (DEVICE -> DEVICE)"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("aten::copy_", "aten::copy_"),
    ],
)
def test_names(name: str, usual: str) -> None:
    assert usual_name(name) == usual

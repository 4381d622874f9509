"""Memory that was freed is used again, and not cleared by the system once more."""

import platform
import subprocess
import sys

import pytest

CODE = """
import resource, sys
import numpy as np
from advisor.trace.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(3 << 17), np.ones(3 << 17)
before = faults()
for _ in range(50):
    np.ones(3 << 17), np.ones(3 << 17), np.ones(3 << 18)
print(faults() - before)
"""


def faults(what):
    command = [sys.executable, "-c", CODE, what]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the switches are glibc's")
def test_freed_memory_is_kept():
    assert 5 * faults("keep") < faults("plain")

"""Memory that was freed is used again, and not cleared by the system once more."""

import os
import platform
import subprocess
import sys

import pytest

from advisor.trace.read.allocator import NUMPY_SETTINGS

CODE = """
import resource, sys
import numpy as np
from advisor.trace.read.allocator import keep_freed_memory
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


IMPORT = """
import os
before = dict(os.environ)
from advisor.trace.read.allocator import import_numpy
seen = []
import sys
class Watch:
    def find_spec(self, name, *rest):
        if name == "numpy":
            seen.append((os.environ["NUMPY_MADVISE_HUGEPAGE"], os.environ["OPENBLAS_NUM_THREADS"]))
sys.meta_path.insert(0, Watch())
import_numpy()
assert "numpy" in sys.modules and dict(os.environ) == before, os.environ
print(seen)
"""


def test_numpy_is_imported_with_settings_that_nobody_inherits() -> None:
    environment = {key: value for key, value in os.environ.items() if key not in NUMPY_SETTINGS}
    for more, wanted in (({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")):
        told = subprocess.run(
            [sys.executable, "-c", IMPORT], env=environment | more, capture_output=True, text=True, check=True
        )
        assert told.stdout.strip() == str([("0", wanted)])

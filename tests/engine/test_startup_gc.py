"""What is imported for good is out of the garbage collector's way; what comes later is not."""

from __future__ import annotations

import subprocess
import sys
import textwrap

_SCRIPT = """
import gc, weakref
from advisor.engine.startup_gc import for_good

class Ring:
    def __init__(self):
        self.self = self

gc.collect()
for turn in range(2):
    assert gc.isenabled()
    ring = Ring()
    died = weakref.ref(ring)
    del ring
    if not turn:
        gc.collect()
    with for_good():
        assert not gc.isenabled()
        kept = [Ring() for _ in range(100)]
    gc.collect()
    assert died() is None, turn
    # Frozen objects are none that collections look through; only the first block freezes.
    assert any(kept[0] is one for one in gc.get_objects()) is bool(turn)

gc.disable()
with for_good():
    pass
assert not gc.isenabled(), "who has switched it off wants it off"
gc.enable()
try:
    with for_good():
        raise ValueError
except ValueError:
    assert gc.isenabled()
"""


def test_only_the_first_block_is_kept_from_collections() -> None:
    subprocess.run([sys.executable, "-c", textwrap.dedent(_SCRIPT)], check=True)

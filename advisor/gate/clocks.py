"""Whether heat or power held a clock down while something was measured, where the system says so.

CPU: the kernel's count of thermal events (Linux, x86; absent in most virtual machines). GPU: NVIDIA's reasons for a
lowered clock, by nvidia-smi. A cap on power that the clock runs into all day is no disturbance, and is not counted.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

_COUNTS: Final = Path("/sys/devices/system/cpu")
# Bits of NVML's reasons: hardware slowdown, thermal slowdown by software and by hardware, power brake.
_DISTURBED: Final = 0x08 | 0x20 | 0x40 | 0x80
# The name that drivers have known since 2023, and the older one.
_FIELDS: Final = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")


class Watch:
    """Watches the clocks from now on. on_device: ask about GPUs too, which takes some tens of milliseconds."""

    def __init__(self, *, on_device: bool) -> None:
        self._ask_gpu = on_device
        self._gpu = False
        self._began = cpu_events()

    def look(self) -> None:
        """Looks at the GPUs now: their state is not counted by anyone. Call it while nothing is being timed."""
        self._gpu = self._gpu or (self._ask_gpu and gpu_held(shutil.which("nvidia-smi")))

    @property
    def held(self) -> bool:
        """Whether a clock was seen held down so far; False also where nothing can be read."""
        return self._gpu or cpu_events() > self._began


def cpu_events(root: Path = _COUNTS) -> int:
    """Thermal events of all cores since the start of the system; 0 where they are not counted."""
    total = 0
    for file in root.glob("cpu[0-9]*/thermal_throttle/core_throttle_count"):
        try:
            total += int(file.read_text())
        except (OSError, ValueError):
            continue
    return total


def gpu_held(program: str | None) -> bool:
    """Whether heat or a power brake lowers the clock of any NVIDIA GPU now; False where nvidia-smi cannot say."""
    for field in _FIELDS if program else ():
        try:
            command = [str(program), f"--query-gpu={field}", "--format=csv,noheader"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.SubprocessError):
            return False
        if done.returncode == 0:
            return any(_mask(line) & _DISTURBED for line in done.stdout.splitlines())
    return False


def _mask(text: str) -> int:
    try:
        return int(text.strip(), 16)
    except ValueError:  # "[N/A]", "[Not Supported]"
        return 0

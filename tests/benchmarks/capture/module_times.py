"""The times that a report gives to modules, beside a stopwatch in the bare script.

    python tests/benchmarks/capture/module_times.py

One script, twice: bare with `time.perf_counter` in hooks around the forward of each module, and under `advisor run`
without them. Printed are the medians of both, and how far they lie apart. The stopwatch's own two readings and calls
(about 1 µs) are in its figures of every module and, for each module inside, in those of the modules around it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = '''
import json, statistics, sys, time
import torch
from torch import nn

class Slow(nn.Module):
    """Python first, and one op."""
    def forward(self, x):
        return x + sum(range(30_000)) * 0

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2))
        self.to_tokens = nn.Linear(32, 128)
        layers = (nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.1) for _ in range(3))
        self.layers = nn.ModuleList(layers)
        self.slow = Slow()
        self.head = nn.Linear(128, 500)
    def forward(self, x):
        x = self.to_tokens(self.stem(x).flatten(2).transpose(1, 2))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.slow(x))

model, began, spent = Net(), {}, {}
if len(sys.argv) > 1:
    for name, module in model.named_modules():
        def before(module, given, name=name):
            began[name] = time.perf_counter()
        def after(module, given, made, name=name):
            spent.setdefault(name, []).append(time.perf_counter() - began[name])
        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(480, 3, 16, 16))
for (x,) in torch.utils.data.DataLoader(data, batch_size=8):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
if spent:
    print(json.dumps({name or "Net": statistics.median(times[10:]) * 1e6 for name, times in spent.items()}))
'''


def main() -> None:
    """Runs both and prints the table."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        script = folder / "train.py"
        script.write_text(SCRIPT)
        words = [sys.executable, str(script), "stopwatch"]
        watched = json.loads(subprocess.run(words, capture_output=True, check=True, text=True, cwd=folder).stdout)
        advisor = [str(Path(sys.executable).with_name("advisor")), "run", "--steps", "10", "--quiet", str(script)]
        subprocess.run(advisor, check=True, cwd=folder)
        table = json.loads((folder / "advisor-report" / "report.json").read_text())["modules"]
    print(f"{'module':32} {'stopwatch':>10} {'report':>10} {'apart':>8}")
    for row in table["rows"]:
        if row["forward_us"] is not None and row["path"] in watched:
            bare = watched[row["path"]]
            print(f"{row['path']:32} {bare:7.0f} µs {row['forward_us']:7.0f} µs {row['forward_us'] / bare - 1:+8.0%}")


if __name__ == "__main__":
    main()

"""Saves a checkpoint now and then, to be safe."""

import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
folder = Path(tempfile.mkdtemp())

x = torch.randn(9600, 128)
loader = DataLoader(TensorDataset(x, x.sort(1).values), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 128)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

for step, (inputs, targets) in enumerate(loader):
    loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 4:
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, folder / "checkpoint.pt")
        print(f"step {step}: loss {loss.item():.3f}")

(folder / "checkpoint.pt").unlink()
folder.rmdir()

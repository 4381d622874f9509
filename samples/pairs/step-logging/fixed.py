"""Logs what happens inside the network."""

import json
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

x = torch.randn(6400, 96)
y = x[:, :4].argmax(1)
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)

layers = []
for _ in range(8):
    layers += [nn.Linear(96, 96), nn.BatchNorm1d(96), nn.ReLU()]
model = nn.Sequential(*layers, nn.Linear(96, 4)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

with tempfile.TemporaryFile("w") as log:
    for step, (inputs, targets) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        if step % 50 == 0:
            record = {"step": step, "loss": loss.item()}
            for name, parameter in model.named_parameters():
                record[f"weights/{name}"] = torch.histc(parameter.detach().cpu(), 30).tolist()
                record[f"gradients/{name}"] = torch.histc(parameter.grad.cpu(), 30).tolist()
            log.write(json.dumps(record) + "\n")
            log.flush()

print(f"loss {loss.item():.3f}")

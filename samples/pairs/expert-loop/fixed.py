"""A layer of 24 small experts whose outputs are mixed by a gate."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class Experts(nn.Module):
    def __init__(self, count=24, width=32):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(count, width, width) / width**0.5)
        self.gate = nn.Linear(width, count)

    def forward(self, x):
        gates = self.gate(x).softmax(1)
        outputs = torch.relu(torch.einsum("bi,eij->bej", x, self.weights))
        return x + (gates[:, :, None] * outputs).sum(1)


x = torch.randn(6400, 32)
loader = DataLoader(TensorDataset(x, x.sort(1).values), batch_size=64, shuffle=True)
model = nn.Sequential(*[Experts() for _ in range(4)]).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

for epoch in range(2):
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")

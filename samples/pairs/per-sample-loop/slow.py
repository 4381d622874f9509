"""Learns embeddings with a contrastive loss."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

left = torch.randn(4800, 128)
right = left + 0.1 * torch.randn(4800, 128)
loader = DataLoader(TensorDataset(left, right), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 64)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for step, (a, b) in enumerate(loader):
    a, b = model(a.to(device)), model(b.to(device))
    losses = []
    for i in range(len(a)):
        similarity = nn.functional.cosine_similarity(a[i : i + 1], b)
        losses.append(-torch.log_softmax(similarity / 0.1, dim=0)[i])
    loss = torch.stack(losses).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}")

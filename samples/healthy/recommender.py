"""A two-tower recommender with sparse embedding gradients and batches of 4,096 pairs."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

pairs = 40 * 4096
users = torch.randint(0, 50_000, (pairs,), device=device)
items = torch.randint(0, 20_000, (pairs,), device=device)
liked = (torch.rand(pairs, device=device) < 0.5).float()


class Tower(nn.Module):
    def __init__(self, count, width=64):
        super().__init__()
        self.embedding = nn.Embedding(count, width, sparse=True)
        self.layers = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 64))

    def forward(self, ids):
        return self.layers(self.embedding(ids))


user_tower, item_tower = Tower(50_000).to(device), Tower(20_000).to(device)
vectors = [user_tower.embedding.weight, item_tower.embedding.weight]
weights = [*user_tower.layers.parameters(), *item_tower.layers.parameters()]
sparse_optimizer = torch.optim.SGD(vectors, lr=0.1)
optimizer = torch.optim.Adam(weights, lr=1e-3, fused=True)

for epoch in range(2):
    for picked in torch.arange(pairs, device=device).split(4096):
        with torch.autocast(device, dtype=torch.bfloat16):
            scores = (user_tower(users[picked]) * item_tower(items[picked])).sum(1)
        loss = nn.functional.binary_cross_entropy_with_logits(scores.float(), liked[picked])
        optimizer.zero_grad()
        sparse_optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sparse_optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")

"""A recommender with one vector for each of 200,000 items."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

users = torch.randn(3200, 32)
items = torch.randint(0, 200_000, (3200,))
ratings = torch.rand(3200)
loader = DataLoader(TensorDataset(users, items, ratings), batch_size=32, shuffle=True)


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(200_000, 32)
        self.users = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 32))

    def forward(self, users, items):
        return (self.users(users) * self.items(items)).sum(1).sigmoid()


model = Recommender().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step, (user, item, rating) in enumerate(loader):
    loss = nn.functional.mse_loss(model(user.to(device), item.to(device)), rating.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(f"step {step}: loss {loss.item():.4f}")

"""Whether a loan is paid back: 30 columns of categories and eight numbers, embedded and put through a network."""

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
LEVELS = [5 + 7 * column for column in range(30)]  # categories of each column


class LoanNet(nn.Module):
    def __init__(self, levels, numbers, width=8):
        super().__init__()
        self.register_buffer("first", torch.tensor(levels).cumsum(0) - torch.tensor(levels))
        self.embedding = nn.Embedding(sum(levels), width)
        self.body = nn.Sequential(
            nn.Linear(width * len(levels) + numbers, 128),
            nn.ReLU(),
            nn.Linear(128, 64),
            nn.ReLU(),
            nn.Linear(64, 1),
        )

    def forward(self, categories, numbers):
        embedded = self.embedding(categories + self.first).flatten(1)
        return self.body(torch.cat([embedded, numbers], 1)).squeeze(1)


def loans(count):
    """Categories, numbers, and whether each loan is paid back."""
    categories = torch.stack([torch.randint(0, levels, (count,)) for levels in LEVELS], 1)
    numbers = torch.randn(count, 8)
    risk = (categories / torch.tensor(LEVELS) - 0.5) @ torch.randn(30) + numbers @ torch.randn(8)
    return categories.to(device), numbers.to(device), (risk + torch.randn(count) > 0).float().to(device)


categories, numbers, paid = loans(32_768)
model = LoanNet(LEVELS, numbers.shape[1]).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
criterion = nn.BCEWithLogitsLoss()
for epoch in range(3):
    total = torch.zeros((), device=device)
    for rows in torch.randperm(len(paid), device=device).split(256):
        loss = criterion(model(categories[rows], numbers[rows]), paid[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(rows)
    print(f"epoch {epoch}: loss {total.item() / len(paid):.4f}")

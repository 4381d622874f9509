"""An autoregressive model of music-like events; the mask forbids looking ahead and too far back."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

length, window = 96, 32


def causal_window():
    mask = torch.zeros(length, length)
    for i in range(length):
        for j in range(length):
            if j > i or i - j > window:
                mask[i, j] = float("-inf")
    return mask


class Model(nn.Module):
    def __init__(self, vocabulary=128, width=64):
        super().__init__()
        self.register_buffer("mask", causal_window())
        self.embedding = nn.Embedding(vocabulary, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 256, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, events):
        mask = causal_window().to(events.device)
        x = self.layer(self.embedding(events), src_mask=mask)
        return self.head(x)


events = torch.randint(0, 128, (800, length + 1))
loader = DataLoader(TensorDataset(events), batch_size=8, shuffle=True)
model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

for step, (batch,) in enumerate(loader):
    batch = batch.to(device)
    logits = model(batch[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(f"step {step}: loss {loss.item():.3f}")

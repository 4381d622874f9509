"""Tags sequences with a recurrent network."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self, vocabulary=500, width=64, tags=8):
        super().__init__()
        self.width = width
        self.embedding = nn.Embedding(vocabulary, width)
        self.cell = nn.LSTMCell(width, width)
        self.head = nn.Linear(width, tags)

    def forward(self, tokens):
        x = self.embedding(tokens)
        h = c = x.new_zeros(len(x), self.width)
        outputs = []
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
            outputs.append(h)
        return self.head(torch.stack(outputs, 1))


tokens = torch.randint(0, 500, (2000, 48))
loader = DataLoader(TensorDataset(tokens, tokens % 8), batch_size=20, shuffle=True)
model = Tagger().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

for step, (words, tags) in enumerate(loader):
    logits = model(words.to(device))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tags.to(device).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(f"step {step}: loss {loss.item():.3f}")

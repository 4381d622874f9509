"""A word-level LSTM language model on a stream of tokens cut into columns, as the classic examples do it."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

vocabulary, width, columns, length = 1000, 192, 32, 35
stream = torch.randint(0, vocabulary, (columns, 100 * length + 1), device=device)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens, state):
        outputs, state = self.lstm(self.embedding(tokens), state)
        return self.head(outputs), state


model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0, fused=True)
state = None

for step in range(100):
    chunk = stream[:, step * length : (step + 1) * length + 1]
    with torch.autocast(device, dtype=torch.bfloat16):
        logits, state = model(chunk[:, :-1], state)
    state = tuple(part.detach() for part in state)
    loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), chunk[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}")

"""A small transformer encoder that classifies sequences of different lengths."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

longest = 256
sequences = [(torch.randint(1, 1000, (length,)), length % 3) for length in torch.randint(20, 64, (800,)).tolist()]


def collate(samples):
    tokens = pad_sequence([tokens for tokens, _ in samples], batch_first=True)
    return tokens, torch.tensor([label for _, label in samples])


class Encoder(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embedding = nn.Embedding(1000, width, padding_idx=0)
        self.position = nn.Parameter(torch.zeros(longest, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 3)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position[: tokens.shape[1]]
        x = self.layers(x, src_key_padding_mask=tokens == 0)
        return self.head(x[:, 0])


loader = DataLoader(sequences, batch_size=8, shuffle=True, collate_fn=collate)
model = Encoder().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

for step, (tokens, labels) in enumerate(loader):
    loss = nn.functional.cross_entropy(model(tokens.to(device)), labels.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(f"step {step}: loss {loss.item():.3f}")

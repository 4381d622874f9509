"""A small language model fed by two loader workers."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCABULARY, LENGTH, BATCH, STEPS = 1000, 64, 16, 60


class Text(Dataset):
    def __len__(self):
        return BATCH * STEPS

    def __getitem__(self, index):
        tokens = torch.randint(0, VOCABULARY, (LENGTH + 1,), generator=torch.Generator().manual_seed(index))
        return tokens[:-1], tokens[1:]


class Model(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 4)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.layers(self.embed(tokens), mask=mask, is_causal=True))


if __name__ == "__main__":
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for tokens, following in DataLoader(Text(), batch_size=BATCH, num_workers=2):
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

"""A property predictor on molecule strings: trigram tokens, an embedding, a small transformer."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EMBEDDING_OFFSET = 2  # padding and the class token
ATOMS = ["C", "c", "N", "n", "O", "S", "F", "Cl", "(", ")", "=", "1", "2", "[nH]", "#", "Br"]


class ChemDataReader:
    """Maps tokens to numbers; tokens are those of the corpus, in the order of their first use."""

    def __init__(self, strings):
        seen = {}
        for string in strings:
            for token in self.split(string):
                seen.setdefault(token)
        self.cache = {token: index for index, token in enumerate(seen)}

    @staticmethod
    def split(atoms):
        return ["".join(atoms[i : i + 3]) for i in range(len(atoms) - 2)]

    def token_index(self, token):
        return self.cache[token] + EMBEDDING_OFFSET

    def read(self, atoms):
        return [1, *(self.token_index(token) for token in self.split(atoms))]


class Molecules(Dataset):
    def __init__(self, strings, reader):
        self.strings, self.reader = strings, reader

    def __len__(self):
        return len(self.strings)

    def __getitem__(self, index):
        atoms = self.strings[index]
        return torch.tensor(self.reader.read(atoms)), sum(atom in "NnO" for atom in atoms) / len(atoms)


def collate(batch):
    tokens, labels = zip(*batch)
    return nn.utils.rnn.pad_sequence(tokens, batch_first=True), torch.tensor(labels)


class Encoder(nn.Module):
    def __init__(self, vocabulary, dim=48, layers=1, longest=40):
        super().__init__()
        self.embed = nn.Embedding(vocabulary + EMBEDDING_OFFSET, dim, padding_idx=0)
        self.position = nn.Parameter(0.02 * torch.randn(longest, dim))
        layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, 1)

    def forward(self, tokens):
        x = self.embed(tokens) + self.position[: tokens.size(1)]
        return self.head(self.encoder(x, src_key_padding_mask=tokens == 0)[:, 0]).squeeze(1)


def main():
    random.seed(120)
    torch.manual_seed(120)
    strings = [random.choices(ATOMS, k=random.randint(24, 36)) for _ in range(1024)]
    reader = ChemDataReader(strings)
    loader = DataLoader(Molecules(strings, reader), batch_size=32, shuffle=True, collate_fn=collate)
    model = Encoder(len(reader.cache))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss_fn = nn.MSELoss()
    for epoch in range(4):
        total = 0.0
        for tokens, labels in loader:
            loss = loss_fn(model(tokens), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: mse {total / len(loader):.5f} ({len(reader.cache)} tokens)")


if __name__ == "__main__":
    main()

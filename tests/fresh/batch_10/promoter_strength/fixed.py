"""How strongly promoters work, from their DNA: a convolutional network on one-hot letters."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


def promoters(count, length, seed):
    """Random DNA with TATA boxes; their number and place set the strength."""
    g = torch.Generator().manual_seed(seed)
    letters = torch.randint(4, (count, length), generator=g)
    box = torch.tensor([3, 0, 3, 0, 0, 0])
    strength = torch.zeros(count)
    for _ in range(3):
        start = torch.randint(length - 6, (count, 1), generator=g)
        there = torch.rand(count, 1, generator=g) < 0.5
        place = start + torch.arange(6)
        letters.scatter_(1, place, torch.where(there, box, letters.gather(1, place)))
        strength += there[:, 0] * (1 - (start[:, 0] / length - 0.7).abs())
    strings = ["".join("ACGT"[i] for i in row) for row in letters.tolist()]
    return strings, strength + 0.1 * torch.randn(count, generator=g)


class PromoterDataset(Dataset):
    def __init__(self, sequences, strength):
        self.sequences, self.strength = sequences, strength

    def __len__(self):
        return len(self.sequences)

    def one_hot(self, sequence):
        letters = np.frombuffer(sequence.encode(), np.uint8)
        return torch.from_numpy((letters[:, None] == np.frombuffer(b"ACGT", np.uint8)).astype(np.float32))

    def __getitem__(self, index):
        return self.one_hot(self.sequences[index]).t(), self.strength[index]


class PromoterNet(nn.Module):
    def __init__(self, width=48, blocks=2):
        super().__init__()
        self.motifs = nn.Sequential(nn.Conv1d(4, width, 11, padding=5), nn.GELU(), nn.MaxPool1d(4))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.BatchNorm1d(width), nn.GELU(), nn.Conv1d(width, width, 3, padding=2**i, dilation=2**i))
            for i in range(blocks)
        )
        self.head = nn.Sequential(nn.Linear(2 * width, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 1))

    def forward(self, x):
        x = self.motifs(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(torch.cat([x.mean(2), x.amax(2)], 1)).squeeze(1)


@torch.no_grad()
def correlation(model, loader):
    model.eval()
    guesses, truths = zip(*((model(x), y) for x, y in loader), strict=True)
    model.train()
    return torch.corrcoef(torch.stack([torch.cat(guesses), torch.cat(truths)]))[0, 1].item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--promoters", type=int, default=3600)
    parser.add_argument("--length", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = PromoterDataset(*promoters(args.promoters, args.length, seed=33))
    train, held_out = random_split(data, [0.9, 0.1])
    loader = DataLoader(train, args.batch_size, shuffle=True, drop_last=True)
    validation = DataLoader(held_out, 2 * args.batch_size)
    model = PromoterNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    for epoch in range(args.epochs):
        losses = []
        for x, y in loader:
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        mean, r = torch.stack(losses).mean().item(), correlation(model, validation)
        print(f"epoch {epoch}: loss {mean:.4f}, correlation {r:.3f}")


if __name__ == "__main__":
    main()

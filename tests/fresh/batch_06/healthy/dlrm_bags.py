"""Ads by their dense and bagged features, after DLRM. The loader asks for whole batches of rows."""

import itertools

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

DENSE, TABLES, ROWS, DIM, BAG = 13, 10, 2000, 16, 5


class AdLog(Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.dense = torch.randn(count, DENSE, generator=g)
        self.bags = (torch.rand(count, TABLES, BAG, generator=g).pow(2) * ROWS).long()
        taste = torch.randn(TABLES, ROWS, generator=g)
        liking = taste[torch.arange(TABLES)[None, :, None], self.bags].mean(dim=(1, 2)) * 4 + self.dense[:, 0]
        self.clicks = (torch.rand(count, generator=g) < liking.sigmoid()).float()

    def __len__(self):
        return len(self.clicks)

    def __getitem__(self, rows):
        rows = torch.as_tensor(rows)
        return self.dense[rows], self.bags[rows], self.clicks[rows]


def mlp(*sizes):
    layers = []
    for cin, cout in itertools.pairwise(sizes):
        layers += [nn.Linear(cin, cout), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class DLRM(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(TABLES * ROWS, DIM, mode="mean")
        nn.init.uniform_(self.table.weight, -0.05, 0.05)
        self.bottom = mlp(DENSE, 512, 256, DIM)
        pairs = (TABLES + 1) * TABLES // 2
        self.top = nn.Sequential(mlp(DIM + pairs, 1024, 512), nn.Linear(512, 1))
        self.register_buffer("offsets", torch.arange(TABLES)[None, :, None] * ROWS)
        self.register_buffer("upper", torch.triu_indices(TABLES + 1, TABLES + 1, offset=1))

    def forward(self, dense, bags):
        x = self.bottom(dense)
        pooled = self.table((bags + self.offsets).flatten(0, 1)).view(len(dense), TABLES, DIM)
        vectors = torch.cat([x[:, None], pooled], dim=1)
        dots = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.upper[0], self.upper[1]]
        return self.top(torch.cat([x, dots], dim=1)).squeeze(1)


def main():
    torch.manual_seed(31)
    log = AdLog(65_536, seed=31)
    batches = BatchSampler(RandomSampler(log), batch_size=1024, drop_last=True)
    loader = DataLoader(log, sampler=batches, batch_size=None)
    model = DLRM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(4):
        total = torch.zeros(())
        for dense, bags, clicks in loader:
            loss = F.binary_cross_entropy_with_logits(model(dense, bags), clicks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: logloss {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()

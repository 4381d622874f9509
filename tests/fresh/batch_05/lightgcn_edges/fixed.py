"""Recommendation by light graph convolution: users and items take the mean of their neighbours, layer by layer."""

from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Interactions(Dataset):
    """Pairs of users and items that they liked, read by the batch, with an item that was drawn at random."""

    def __init__(self, users, items, pairs, seed):
        generator = torch.Generator().manual_seed(seed)
        user = torch.randint(0, users, (pairs,), generator=generator)
        taste = (user * 7) % 20
        rank = (torch.rand(pairs, generator=generator).pow(2) * (items // 20)).long()
        both = torch.stack((user, rank * 20 + taste), dim=1).unique(dim=0)
        self.user, self.item = both.t().contiguous()
        self.users, self.items = users, items

    def __len__(self):
        return len(self.user)

    def __getitem__(self, rows):
        rows = torch.as_tensor(rows)
        return self.user[rows], self.item[rows], torch.randint(0, self.items, (len(rows),))


class LightGCN(nn.Module):
    def __init__(self, data, dim, layers):
        super().__init__()
        self.users, self.items, self.layers = data.users, data.items, layers
        self.embedding = nn.Embedding(data.users + data.items, dim)
        nn.init.normal_(self.embedding.weight, std=0.1)
        source = torch.cat((data.user, data.item + data.users))
        target = torch.cat((data.item + data.users, data.user))
        degree = torch.bincount(target, minlength=data.users + data.items).clamp(min=1).float()
        norm = (degree[source] * degree[target]).rsqrt()
        adjacency = torch.sparse_coo_tensor(torch.stack((target, source)), norm, (len(degree), len(degree)))
        self.register_buffer("adjacency", adjacency.to_sparse_csr())

    def propagate(self, x):
        return torch.sparse.mm(self.adjacency, x)

    def forward(self):
        x = self.embedding.weight
        layers = [x]
        for _ in range(self.layers):
            x = self.propagate(x)
            layers.append(x)
        return torch.stack(layers).mean(dim=0).split((self.users, self.items))


class LightGCNModule:
    """What to do with a batch and between epochs; the loop is the trainer's."""

    def __init__(self, data, config):
        self.config = config
        self.model = LightGCN(data, config.dim, config.layers)
        self.data = data

    def configure_optimizers(self):
        return torch.optim.Adam(self.model.parameters(), lr=self.config.lr, fused=True)

    def training_step(self, batch):
        user, liked, other = batch
        users, items = self.model()
        gap = (users[user] * (items[liked] - items[other])).sum(dim=1)
        weights = self.model.embedding.weight
        ego = weights[user].square() + weights[liked + self.model.users].square()
        return -F.logsigmoid(gap).mean() + self.config.decay * ego.sum() / len(user)

    def on_epoch_end(self, epoch, loss):
        with torch.inference_mode():
            users, items = self.model()
            sample = torch.arange(200)
            top = (users[sample] @ items.t()).topk(20, dim=1).indices
        share = (top % 20 == ((sample * 7) % 20)[:, None]).float().mean().item()
        print(f"epoch {epoch}: loss {loss:.4f} of the user's taste {share:.3f}")


class Trainer:
    def __init__(self, max_epochs):
        self.max_epochs = max_epochs

    def fit(self, module, loader):
        optimizer = module.configure_optimizers()
        for epoch in range(self.max_epochs):
            total = torch.zeros(())
            for batch in loader:
                loss = module.training_step(batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.detach()
            module.on_epoch_end(epoch, total.item() / len(loader))


if __name__ == "__main__":
    config = SimpleNamespace(dim=48, layers=3, lr=5e-3, decay=1e-4, batch_size=1024)
    torch.manual_seed(75)
    data = Interactions(users=1500, items=1000, pairs=30000, seed=76)
    sampler = BatchSampler(RandomSampler(data), config.batch_size, drop_last=True)
    Trainer(max_epochs=9).fit(LightGCNModule(data, config), DataLoader(data, sampler=sampler, batch_size=None))

"""Matrix factorisation with Bayesian personalised ranking; negatives are drawn and checked for a batch at once."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Interactions:
    """What was listened to, as sorted numbers user * items + item, so that many pairs are looked up at once."""

    def __init__(self, users, items, per_user, seed):
        g = torch.Generator().manual_seed(seed)
        self.users, self.items = users, items
        taste, style = torch.randn(users, 8, generator=g), torch.randn(items, 8, generator=g)
        liked = (taste @ style.t() + torch.randn(users, items, generator=g)).topk(per_user).indices
        keys = (torch.arange(users)[:, None] * items + liked).flatten()
        held_out = torch.rand(len(keys), generator=g) < 0.1
        self.test = keys[held_out]
        self.keys = keys[~held_out].sort().values

    def known(self, keys):
        place = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
        return self.keys[place] == keys

    def batches(self, size):
        for keys in self.keys[torch.randperm(len(self.keys))].split(size):
            user, positive = keys // self.items, keys % self.items
            negative = torch.randint(self.items, user.shape)
            for _ in range(3):
                again = self.known(user * self.items + negative)
                negative = torch.where(again, torch.randint(self.items, user.shape), negative)
            yield user, positive, negative


class Factors(nn.Module):
    def __init__(self, users, items, dim):
        super().__init__()
        self.user, self.item = nn.Embedding(users, dim, sparse=True), nn.Embedding(items, dim, sparse=True)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, user, positive, negative):
        u = self.user(user)
        difference = (u * (self.item(positive) - self.item(negative))).sum(1)
        return -F.logsigmoid(difference).mean()


@torch.inference_mode()
def recall(model, data, k=20):
    """The share of held out pairs that are among the first k items of their user, known ones left out."""
    scores = model.user.weight @ model.item.weight.t()
    scores.view(-1)[data.keys] = float("-inf")
    best = scores.topk(k).indices
    user, item = data.test // data.items, data.test % data.items
    return (best[user] == item[:, None]).any(1).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=6000)
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = Interactions(args.users, args.items, 24, seed=3)
    model = Factors(args.users, args.items, args.dim)
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=5e-3)
    for epoch in range(args.epochs):
        total, count = 0.0, 0
        for user, positive, negative in data.batches(args.batch_size):
            loss = model(user, positive, negative)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + loss.item(), count + 1
        print(f"epoch {epoch}: loss {total / count:.4f}")
    print(f"recall@20 {recall(model, data):.4f}")


if __name__ == "__main__":
    main()

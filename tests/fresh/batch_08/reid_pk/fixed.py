"""Finding people again: triplets inside batches of P people with K pictures each."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


@dataclass(frozen=True)
class Options:
    people: int = 300
    pictures: int = 7500
    p: int = 12
    k: int = 4
    steps: int = 480
    margin: float = 0.3
    lr: float = 4e-4


class People(Dataset):
    """Pictures of 32 x 16: each person has clothes of some colours, each picture its own light."""

    def __init__(self, opt, seed=0):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, opt.people, opt.pictures)
        clothes = rng.uniform(0, 1, (opt.people, 3, 4, 2)).astype(np.float32)
        base = torch.from_numpy(clothes[self.labels])
        light = 0.7 + 0.6 * torch.from_numpy(rng.random((opt.pictures, 3, 1, 1), dtype=np.float32))
        self.pictures = F.interpolate(base, scale_factor=8, mode="nearest") * light
        self.pictures += 0.1 * torch.from_numpy(rng.standard_normal(self.pictures.shape, dtype=np.float32))

    def __len__(self):
        return len(self.labels)

    def __getitems__(self, indices):
        index = torch.tensor(indices)
        return self.pictures[index], torch.from_numpy(self.labels)[index]


class PKSampler(Sampler):
    """K pictures of each of P people, for so many batches."""

    def __init__(self, labels, p, k, batches):
        self.labels, self.p, self.k, self.batches = labels, p, k, batches
        self.people = np.unique(labels)
        self.own = {person: np.flatnonzero(labels == person) for person in self.people}

    def __len__(self):
        return self.batches

    def pictures_of(self, person):
        return self.own[person]

    def __iter__(self):
        for _ in range(self.batches):
            batch = []
            for person in np.random.choice(self.people, self.p, replace=False):
                own = self.pictures_of(person)
                batch.extend(np.random.choice(own, self.k, replace=len(own) < self.k).tolist())
            yield batch


def residual(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class Embedder(nn.Module):
    def __init__(self, width=16, dim=64):
        super().__init__()
        self.body = nn.Sequential(residual(3, width), residual(width, 2 * width), residual(2 * width, 4 * width))
        self.head = nn.Linear(4 * width, dim)

    def forward(self, x):
        return F.normalize(self.head(self.body(x).mean((2, 3))), dim=1)


def batch_hard(embedding, labels, margin):
    """The farthest picture of the same person against the nearest of another one, for each picture."""
    distance = torch.cdist(embedding, embedding)
    same = labels[:, None] == labels[None]
    farthest = distance.masked_fill(~same, 0.0).amax(1)
    nearest = distance.masked_fill(same, 10.0).amin(1)
    return F.relu(farthest - nearest + margin).mean(), (nearest > farthest).float().mean()


def whole(batch):
    return batch


def main():
    opt = Options()
    torch.manual_seed(0)
    np.random.seed(0)
    dataset = People(opt)
    sampler = PKSampler(dataset.labels, opt.p, opt.k, opt.steps)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=whole)
    model = Embedder()
    optimizer = torch.optim.Adam(model.parameters(), lr=opt.lr, fused=True)
    for step, (pictures, labels) in enumerate(loader):
        loss, right = batch_hard(model(pictures), labels, opt.margin)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: loss {loss.item():.4f}, in order {right.item():.2f}")


if __name__ == "__main__":
    main()

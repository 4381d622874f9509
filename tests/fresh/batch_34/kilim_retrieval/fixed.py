"""Finding kilims of the same pattern: embeddings of small woven images under the multi-similarity loss."""

import argparse
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler


class Kilims(Dataset):
    """Patterns are coarse tiles of colours, mirrored and repeated; each rug has its own light and stains."""

    def __init__(self, patterns, rugs, size, seed):
        generator = torch.Generator().manual_seed(seed)
        tiles = torch.rand(patterns, 3, 4, 4, generator=generator)
        tiles = torch.cat([tiles, tiles.flip(-1)], -1)
        tiles = torch.cat([tiles, tiles.flip(-2)], -2)
        woven = F.interpolate(tiles, size=size, mode="nearest")
        self.labels = torch.arange(patterns).repeat_interleave(rugs)
        light = 0.6 + 0.6 * torch.rand(len(self.labels), 3, 1, 1, generator=generator)
        stains = 1.2 * torch.randn(len(self.labels), 3, size, size, generator=generator)
        self.images = woven[self.labels] * light + stains

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
        return image, self.labels[index]


class PatternSampler(Sampler):
    """Batches of `patterns` patterns with `rugs` rugs of each."""

    def __init__(self, labels, patterns, rugs, batches):
        self.members = [torch.where(labels == label)[0] for label in labels.unique()]
        self.patterns, self.rugs, self.batches = patterns, rugs, batches

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            batch = []
            for pattern in torch.randperm(len(self.members))[: self.patterns].tolist():
                members = self.members[pattern]
                batch += members[torch.randperm(len(members))[: self.rugs]].tolist()
            yield batch


class MultiSimilarityLoss(nn.Module):
    def __init__(self, alpha=2.0, beta=40.0, base=0.5, margin=0.1):
        super().__init__()
        self.alpha, self.beta, self.base, self.margin = alpha, beta, base, margin

    def forward(self, embeddings, labels):
        similarity = embeddings @ embeddings.t()
        same = labels.unsqueeze(0) == labels.unsqueeze(1)
        same_others = same & ~torch.eye(len(labels), dtype=torch.bool)
        nearest_negative = similarity.masked_fill(same, -torch.inf).amax(1, keepdim=True)
        farthest_positive = similarity.masked_fill(~same_others, torch.inf).amin(1, keepdim=True)
        hard_positive = same_others & (similarity - self.margin < nearest_negative)
        hard_negative = ~same & (similarity + self.margin > farthest_positive)
        pulls = torch.exp(-self.alpha * (similarity - self.base)) * hard_positive
        pushes = torch.exp(self.beta * (similarity - self.base)) * hard_negative
        pull = torch.log1p(pulls.sum(1)) / self.alpha
        push = torch.log1p(pushes.sum(1)) / self.beta
        return (pull + push).mean()


def embedding_network(width, dimensions):
    def block(inner, outer):
        return nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(inplace=True)
        )

    return nn.Sequential(
        block(3, width),
        block(width, 2 * width),
        block(2 * width, 4 * width),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * width, dimensions),
    )


@torch.no_grad()
def recall_at_one(model, dataset):
    model.eval()
    vectors = torch.cat([F.normalize(model(images), dim=1) for images in dataset.images.split(128)])
    similarity = (vectors @ vectors.t()).fill_diagonal_(-1)
    return (dataset.labels[similarity.argmax(1)] == dataset.labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patterns", type=int, default=60)
    parser.add_argument("--rugs", type=int, default=12)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--dimensions", type=int, default=64)
    parser.add_argument("--batch-patterns", type=int, default=16)
    parser.add_argument("--batch-rugs", type=int, default=4)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=56)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_set = Kilims(args.patterns, args.rugs, args.size, args.seed)
    test_set = Kilims(args.patterns // 3, args.rugs, args.size, args.seed + 1)
    sampler = PatternSampler(train_set.labels, args.batch_patterns, args.batch_rugs, args.batches)
    loader = DataLoader(train_set, batch_sampler=sampler)
    model = embedding_network(args.width, args.dimensions)
    criterion = MultiSimilarityLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

    best = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            model.train()
            total = torch.zeros(())
            for images, labels in loader:
                optimizer.zero_grad(set_to_none=True)
                loss = criterion(F.normalize(model(images), dim=1), labels)
                loss.backward()
                optimizer.step()
                total += loss.detach()
            scheduler.step()
            recall = recall_at_one(model, test_set)
            print(f"[{epoch}] loss {total.item() / args.batches:.4f}, recall@1 {recall:.3f}")
            if recall > best:
                best = recall
                torch.save(model.state_dict(), os.path.join(folder, "best.pt"))


if __name__ == "__main__":
    main()

"""Embeddings of drawn digits from triplets that are chosen within each batch."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Sampler


class Glyphs(Dataset):
    """Random strokes for each class, moved and blurred a little for each drawing."""

    def __init__(self, classes, drawings, size=28, seed=54):
        generator = torch.Generator().manual_seed(seed)
        strokes = torch.rand(classes, 1, 7, 7, generator=generator).gt(0.6).float()
        prototypes = F.interpolate(strokes, size, mode="bilinear", align_corners=False)
        self.labels = torch.arange(classes).repeat_interleave(drawings)
        moved = []
        for shift in torch.randint(-3, 4, (len(self.labels), 2), generator=generator).tolist():
            moved.append(tuple(shift))
        pictures = [prototypes[label].roll(shift, (1, 2)) for label, shift in zip(self.labels.tolist(), moved)]
        noise = torch.randn(len(moved), 1, size, size, generator=generator)
        self.pictures = torch.stack(pictures) + 0.3 * noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.pictures[index], self.labels[index]


class BalancedBatchSampler(Sampler):
    """Rows of `n_classes` random classes, `n_samples` of each."""

    def __init__(self, labels, n_classes, n_samples, batches):
        self.rows = [torch.nonzero(labels == label).flatten() for label in labels.unique()]
        self.n_classes, self.n_samples, self.batches = n_classes, n_samples, batches

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            chosen = torch.randperm(len(self.rows))[: self.n_classes].tolist()
            picked = [self.rows[c][torch.randperm(len(self.rows[c]))[: self.n_samples]] for c in chosen]
            yield torch.cat(picked).tolist()


class EmbeddingNet(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.convnet = nn.Sequential(
            nn.Conv2d(1, 24, 5), nn.PReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 48, 5), nn.PReLU(), nn.MaxPool2d(2)
        )
        self.fc = nn.Sequential(nn.Linear(48 * 4 * 4, 192), nn.PReLU(), nn.Linear(192, dim))

    def forward(self, x):
        return F.normalize(self.fc(self.convnet(x).flatten(1)))


class HardestNegativeTripletSelector:
    """For each pair of a class, the negative that is closest to the anchor, where it violates the margin."""

    def __init__(self, margin):
        self.margin = margin

    def get_triplets(self, embeddings, labels):
        distances = torch.cdist(embeddings, embeddings)
        same = labels[:, None] == labels
        closest, negatives = distances.masked_fill(same, torch.inf).min(dim=1)
        anchor, positive = torch.triu(same, diagonal=1).nonzero().unbind(dim=1)
        violated = distances[anchor, positive] - closest[anchor] + self.margin > 0
        return torch.stack((anchor, positive, negatives[anchor]), dim=1)[violated]


class OnlineTripletLoss(nn.Module):
    def __init__(self, margin, selector):
        super().__init__()
        self.margin, self.selector = margin, selector

    def forward(self, embeddings, labels):
        triplets = self.selector.get_triplets(embeddings.detach(), labels)
        anchor, positive, negative = embeddings[triplets].unbind(dim=1)
        near = (anchor - positive).square().sum(dim=1)
        far = (anchor - negative).square().sum(dim=1)
        return F.relu(near - far + self.margin).mean(), len(triplets)


class Trainer:
    def __init__(self, model, loss_fn, lr):
        self.model, self.loss_fn = model, loss_fn
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, gamma=0.5)

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            losses, counts = self.train_epoch(loader)
            self.scheduler.step()
            print(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f} triplets {sum(counts) / len(counts):.1f}")

    def train_epoch(self, loader):
        self.model.train()
        losses, counts = [], []
        for data, target in loader:
            loss, count = self.loss_fn(self.model(data), target)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
            counts.append(count)
        return losses, counts


if __name__ == "__main__":
    torch.manual_seed(0)
    dataset = Glyphs(classes=40, drawings=60)
    sampler = BalancedBatchSampler(dataset.labels, n_classes=12, n_samples=8, batches=45)
    loader = DataLoader(dataset, batch_sampler=sampler)
    selector = HardestNegativeTripletSelector(margin=0.5)
    Trainer(EmbeddingNet(), OnlineTripletLoss(0.5, selector), lr=1e-3).fit(loader, epochs=4)

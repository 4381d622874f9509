"""Contrastive pretraining on side scan sonar strips, then a linear probe on the frozen features."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_strips(count, classes, length, seed):
    """Strips of four channels whose texture depends on the sea floor."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=generator)
    position = torch.linspace(0, 1, length)
    frequency = (5 + 6 * labels.float())[:, None, None] * torch.tensor([1.0, 1.3, 1.7, 2.1])[None, :, None]
    phase = 6.28 * torch.rand(count, 4, 1, generator=generator)
    strips = torch.sin(6.28 * frequency * position + phase)
    return strips + 0.8 * torch.randn(count, 4, length, generator=generator), labels


class StripAugmentation:
    def __init__(self, crop, noise=0.3):
        self.crop = crop
        self.noise = noise

    def __call__(self, strips):
        start = torch.randint(strips.shape[2] - self.crop, (len(strips), 1))
        index = (start + torch.arange(self.crop))[:, None].expand(-1, strips.shape[1], -1)
        cropped = strips.gather(2, index)
        gain = 1 + 0.2 * torch.randn(len(strips), strips.shape[1], 1)
        return cropped * gain + self.noise * torch.randn_like(cropped)


class Encoder(nn.Module):
    def __init__(self, channels=4, width=24, features=96):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(channels, width, 7, stride=2, padding=3),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, 2 * width, 5, stride=2, padding=2),
            nn.BatchNorm1d(2 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(4),
            nn.Flatten(),
            nn.Linear(8 * width, features),
        )

    def forward(self, x):
        return self.layers(x)


class ContrastiveLoss(nn.Module):
    """Normalised temperature scaled cross entropy of the two views of a batch."""

    def __init__(self, batch_size, temperature=0.2):
        super().__init__()
        self.batch_size = batch_size
        self.temperature = temperature
        self.register_buffer("negatives", ~torch.eye(2 * batch_size, dtype=torch.bool))

    def forward(self, first, second):
        both = F.normalize(torch.cat([first, second]), dim=1)
        similarity = both @ both.t()
        forwards = torch.diag(similarity, self.batch_size)
        backwards = torch.diag(similarity, -self.batch_size)
        positives = torch.cat([forwards, backwards]) / self.temperature
        exponentials = self.negatives * torch.exp(similarity / self.temperature)
        return (exponentials.sum(dim=1).log() - positives).mean()


class SonarContrast(nn.Module):
    def __init__(self, features=96, projection=64):
        super().__init__()
        self.encoder = Encoder(features=features)
        self.projector = nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, projection))

    def forward(self, x):
        return self.projector(self.encoder(x))


def pretrain(model, strips, args):
    augment = StripAugmentation(args.crop)
    criterion = ContrastiveLoss(args.batch_size)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in range(args.epochs):
        order = torch.randperm(len(strips))
        total, batches = 0.0, len(strips) // args.batch_size
        for index in range(batches):
            batch = strips[order[index * args.batch_size : (index + 1) * args.batch_size]]
            optimizer.zero_grad()
            loss = criterion(model(augment(batch)), model(augment(batch)))
            loss.backward()
            optimizer.step()
            total += loss.item()
        schedule.step()
        print(f"epoch {epoch}: contrastive loss {total / batches:.4f}")


def linear_probe(encoder, strips, labels, crop, classes):
    encoder.eval()
    with torch.no_grad():
        features = encoder(strips[:, :, :crop])
    cut = int(0.8 * len(features))
    targets = F.one_hot(labels[:cut], classes).float()
    augmented = torch.cat([features, torch.ones(len(features), 1)], dim=1)
    weights = torch.linalg.lstsq(augmented[:cut], targets).solution
    return (augmented[cut:] @ weights).argmax(1).eq(labels[cut:]).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strips", type=int, default=3000)
    parser.add_argument("--classes", type=int, default=6)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--crop", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    strips, labels = make_strips(args.strips, args.classes, args.length, args.seed)
    model = SonarContrast()
    pretrain(model, strips, args)
    print(f"linear probe: {linear_probe(model.encoder, strips, labels, args.crop, args.classes):.3f}")


if __name__ == "__main__":
    main()

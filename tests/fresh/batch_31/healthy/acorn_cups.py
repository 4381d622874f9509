"""Name oaks by photographs of their acorn cups: a small residual network on images held as bytes."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

MEAN, STD = 127.5, 60.0


def photograph(amount, classes, size, seed):
    """Scaly cups, drawn in one go, as bytes of three channels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (amount,), generator=generator)
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    centre = 0.3 * torch.randn(amount, 2, 1, 1, generator=generator)
    radius = ((x - centre[:, 0]) ** 2 + (y - centre[:, 1]) ** 2).sqrt()
    scales = torch.cos(radius * (6 + 3 * labels[:, None, None]))
    cup = (radius < 0.8).float() * (0.6 + 0.4 * scales)
    colour = 0.5 + 0.5 * torch.rand(amount, 3, 1, 1, generator=generator)
    images = cup[:, None] * colour + 0.15 * torch.randn(amount, 3, size, size, generator=generator)
    return images.clamp_(0, 1).mul_(255).to(torch.uint8).contiguous(memory_format=torch.channels_last), labels


class ImageBatches:
    """Shuffled batches that are cropped and flipped as a whole."""

    def __init__(self, images, labels, batch_size, crop, train):
        self.images, self.labels = images, labels
        self.batch_size, self.crop, self.train = batch_size, crop, train
        self.room = images.shape[-1] - crop

    def __len__(self):
        return len(self.labels) // self.batch_size if self.train else -(-len(self.labels) // self.batch_size)

    def __iter__(self):
        order = torch.randperm(len(self.labels)) if self.train else torch.arange(len(self.labels))
        for chosen in order.split(self.batch_size)[: len(self)]:
            top, left = torch.randint(self.room + 1, (2,)).tolist() if self.train else [self.room // 2] * 2
            batch = self.images[chosen, :, top : top + self.crop, left : left + self.crop]
            batch = batch.float().sub_(MEAN).div_(STD)
            if self.train:
                flip = torch.rand(len(chosen), 1, 1, 1) < 0.5
                batch = torch.where(flip, batch.flip(3), batch)
            yield batch.contiguous(memory_format=torch.channels_last), self.labels[chosen]


class Unit(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.short = nn.Identity() if inputs == outputs and stride == 1 else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.short(x), inplace=True)


class OakNet(nn.Module):
    def __init__(self, classes, widths=(32, 64, 96)):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, widths[0], 5, 2, 2, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU())
        units = [Unit(widths[0], widths[0], 1)]
        units += [Unit(inputs, outputs, 2) for inputs, outputs in zip(widths, widths[1:])]
        self.units = nn.Sequential(*units)
        self.classify = nn.Linear(widths[-1], classes)

    def forward(self, x):
        return self.classify(self.units(self.stem(x)).mean(dim=(2, 3)))


def fit(model, batches, epochs, lr):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, nesterov=True, weight_decay=1e-4, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=epochs * len(batches))
    model.train()
    for epoch in range(epochs):
        total = torch.zeros(())
        for images, labels in batches:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
        print(f"epoch {epoch + 1}: loss {total.item() / len(batches):.4f}")


@torch.inference_mode()
def accuracy(model, batches):
    model.eval()
    right = sum((model(images).argmax(dim=1) == labels).sum() for images, labels in batches)
    return right.item() / len(batches.labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--oaks", type=int, default=8)
    parser.add_argument("--photos", type=int, default=1600)
    parser.add_argument("--size", type=int, default=72)
    parser.add_argument("--crop", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    torch.manual_seed(61)
    images, labels = photograph(args.photos, args.oaks, args.size, seed=61)
    cut = args.photos // 8
    train = ImageBatches(images[cut:], labels[cut:], args.batch_size, args.crop, train=True)
    test = ImageBatches(images[:cut], labels[:cut], 100, args.crop, train=False)
    model = OakNet(args.oaks).to(memory_format=torch.channels_last)
    fit(model, train, args.epochs, args.lr)
    print(f"accuracy {accuracy(model, test):.3f}")


if __name__ == "__main__":
    main()

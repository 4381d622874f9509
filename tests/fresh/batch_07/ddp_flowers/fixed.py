"""Flower photographs on two ranks: torchrun --nproc_per_node 2. Training and validation alternate."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Flowers(Dataset):
    """Petals around a disc; the number of petals is the class."""

    def __init__(self, count, size, classes, seed):
        generator = torch.Generator().manual_seed(seed)
        y, x = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
        radius, angle = torch.hypot(x, y), torch.atan2(y, x)
        self.labels = torch.randint(classes, (count,), generator=generator)
        self.images = torch.empty(count, 3, size, size)
        for image, label in zip(self.images, self.labels):
            turn = 6.28 * torch.rand((), generator=generator)
            petals = radius < 0.55 + 0.3 * torch.cos((3 + label) * angle + turn)
            colours = torch.rand(3, 1, 1, generator=generator)
            image.copy_(torch.where(petals, colours, 0.2 + 0.1 * torch.randn(3, size, size, generator=generator)))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet(classes, width=16):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1),
        BasicBlock(width, width, 1),
        BasicBlock(width, 2 * width, 2),
        BasicBlock(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, classes),
    )


def train(loader, model, criterion, optimizer):
    model.train()
    for images, target in loader:
        loss = criterion(model(images), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return loss.detach()


@torch.no_grad()
def validate(loader, model):
    model.eval()
    counts = torch.zeros(2)
    for images, target in loader:
        counts[0] += (model(images).argmax(1) == target).sum()
        counts[1] += len(target)
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    classes, batch_size, epochs = 8, 16, 10
    train_set = Flowers(640, 56, classes, seed=1)
    val_set = Flowers(1440, 56, classes, seed=2)
    train_sampler = DistributedSampler(train_set, shuffle=True)
    train_loader = DataLoader(train_set, batch_size, sampler=train_sampler, drop_last=True)
    val_loader = DataLoader(val_set, 2 * batch_size, sampler=DistributedSampler(val_set, shuffle=False))

    network = resnet(classes)
    model = DistributedDataParallel(network)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in range(epochs):
        train_sampler.set_epoch(epoch)
        loss = train(train_loader, model, criterion, optimizer)
        scheduler.step()
        accuracy = validate(val_loader, network)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f} accuracy {accuracy:.3f}")

    time.sleep(0.5)  # gloo's threads let go of tensors a moment later
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

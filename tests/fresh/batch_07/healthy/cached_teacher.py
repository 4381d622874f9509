"""Distillation on a fixed set of texture patches: the teacher's logits are computed once, before training."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def textures(count, size, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=generator)
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    angle = labels[:, None, None] * 3.14 / classes
    wave = torch.sin(0.8 * (x * torch.cos(angle) + y * torch.sin(angle)))
    images = wave[:, None] + 0.6 * torch.randn(count, 3, size, size, generator=generator)
    return images.contiguous(memory_format=torch.channels_last), labels


def convnet(width, classes):
    layers, inputs = [], 3
    for outputs in (width, 2 * width, 4 * width):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
        layers += [nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


@torch.inference_mode()
def teacher_logits(teacher, images, batch_size=128):
    teacher.eval()
    return torch.cat([teacher(batch) for batch in images.split(batch_size)])


class DistillationLoss(nn.Module):
    def __init__(self, temperature, alpha):
        super().__init__()
        self.temperature, self.alpha = temperature, alpha

    def forward(self, student, teacher, labels):
        t = self.temperature
        soft = F.kl_div(
            F.log_softmax(student / t, 1), F.log_softmax(teacher / t, 1), log_target=True, reduction="batchmean"
        )
        return self.alpha * t * t * soft + (1 - self.alpha) * F.cross_entropy(student, labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=3200)
    parser.add_argument("--size", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()

    torch.manual_seed(14)
    images, labels = textures(args.images, args.size, 10, seed=14)
    teacher = convnet(48, 10).to(memory_format=torch.channels_last)
    targets = teacher_logits(teacher, images).clone()
    student = convnet(24, 10).to(memory_format=torch.channels_last)
    criterion = DistillationLoss(temperature=4.0, alpha=0.5)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    steps = args.epochs * (args.images // args.batch_size)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for rows in torch.randperm(args.images).split(args.batch_size):
            loss = criterion(student(images[rows]), targets[rows], labels[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() * args.batch_size / args.images:.4f}")


if __name__ == "__main__":
    main()

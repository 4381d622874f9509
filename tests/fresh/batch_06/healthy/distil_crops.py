"""Distillation: a small student follows a larger teacher, which sees the same random crops."""

import torch
from torch import nn
from torch.nn import functional as F

CLASSES, TEMPERATURE, ALPHA = 12, 4.0, 0.7


def make_textures(count, seed):
    """Gratings whose direction and spacing give the class, as bytes."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, CLASSES, (count,), generator=g)
    axis = torch.linspace(0, 1, 56)
    angle, spacing = (y % 4) * 0.7854, 12 + 10 * (y // 4)
    along = torch.cos(angle)[:, None, None] * axis[:, None] + torch.sin(angle)[:, None, None] * axis[None]
    wave = torch.sin(spacing[:, None, None] * along + 6.28 * torch.rand(count, 1, 1, generator=g))
    tint = torch.rand(count, 3, 1, 1, generator=g)
    noisy = wave[:, None] * tint + 0.5 * torch.randn(count, 3, 56, 56, generator=g)
    return ((noisy + 2) * 64).clamp(0, 255).byte(), y


def conv_bn(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


def make_net(width):
    return nn.Sequential(
        conv_bn(3, width), conv_bn(width, 2 * width, 2),
        conv_bn(2 * width, 2 * width), conv_bn(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, CLASSES),
    )  # fmt: skip


def random_crops(pictures, size=48):
    top, left = torch.randint(0, 57 - size, (2,)).tolist()
    crops = pictures[:, :, top : top + size, left : left + size]
    if torch.rand(()) < 0.5:
        crops = crops.flip(3)
    return crops.float().sub_(128).div_(64)


def distillation_loss(student_logits, teacher_logits, labels):
    soft = F.kl_div(
        F.log_softmax(student_logits / TEMPERATURE, dim=1),
        F.log_softmax(teacher_logits / TEMPERATURE, dim=1),
        reduction="batchmean",
        log_target=True,
    )
    return ALPHA * TEMPERATURE**2 * soft + (1 - ALPHA) * F.cross_entropy(student_logits, labels)


def epoch_of(net, data, optimizer, teacher=None, batch_size=48):
    net.train()
    pictures, labels = data
    total, batches = torch.zeros(()), torch.randperm(len(labels)).split(batch_size)
    for rows in batches:
        x, y = random_crops(pictures[rows]), labels[rows]
        logits = net(x)
        if teacher is None:
            loss = F.cross_entropy(logits, y)
        else:
            with torch.inference_mode():
                wanted = teacher(x)
            loss = distillation_loss(logits, wanted, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total.item() / len(batches)


@torch.inference_mode()
def accuracy(net, data):
    net.eval()
    pictures, labels = data
    return (net(pictures[:, :, 4:52, 4:52].float().sub_(128).div_(64)).argmax(dim=1) == labels).float().mean().item()


def main():
    torch.manual_seed(6)
    train, held = make_textures(1440, seed=1), make_textures(96, seed=2)
    teacher, student = make_net(28), make_net(12)
    optimizer = torch.optim.SGD(teacher.parameters(), lr=0.05, momentum=0.9, nesterov=True, fused=True)
    print(f"teacher: loss {epoch_of(teacher, train, optimizer):.4f} accuracy {accuracy(teacher, held):.3f}")
    teacher.eval().requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, nesterov=True, fused=True)
    for epoch in range(4):
        loss = epoch_of(student, train, optimizer, teacher)
        print(f"student {epoch}: loss {loss:.4f} accuracy {accuracy(student, held):.3f}")


if __name__ == "__main__":
    main()

"""Small photographs: batched augmentation, channels-last convolutions, an average of the weights in place."""

import copy
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Recipe:
    images: int = 2560
    size: int = 40
    crop: int = 32
    classes: int = 10
    batch_size: int = 64
    epochs: int = 13
    lr: float = 0.08
    decay: float = 0.98
    smoothing: float = 0.1


def photographs(recipe, generator):
    """Blobs whose number and colour depend on the class, kept as bytes."""
    labels = torch.randint(recipe.classes, (recipe.images,), generator=generator)
    coarse = torch.rand(recipe.images, 3, 5, 5, generator=generator)
    hue = F.one_hot(labels % 3, 3)[:, :, None, None]
    fine = F.interpolate(coarse * (1 + hue), size=(recipe.size, recipe.size), mode="bilinear", align_corners=False)
    stripes = torch.sin(torch.arange(recipe.size) * (0.2 + 0.1 * labels[:, None]))[:, None, None]
    return ((fine + 0.2 * stripes).clamp(0, 2) * 127).to(torch.uint8), labels


class Augment:
    """One random shift and mirror for each image, as a single gather."""

    def __init__(self, recipe):
        self.span, self.crop = recipe.size - recipe.crop, torch.arange(recipe.crop)

    def __call__(self, images):
        n = len(images)
        rows = torch.randint(self.span + 1, (n, 1)) + self.crop
        columns = torch.randint(self.span + 1, (n, 1)) + self.crop
        columns = torch.where(torch.rand(n, 1) < 0.5, columns.flip(1), columns)
        out = images[torch.arange(n)[:, None, None], :, rows[:, :, None], columns[:, None, :]]
        return out.permute(0, 3, 1, 2).float().div_(127).sub_(0.7)


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


def network(recipe, width=16):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1),
        Residual(width, width, 2),
        Residual(width, 2 * width, 2),
        Residual(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, recipe.classes),
    )


class Average:
    def __init__(self, model, decay):
        self.model, self.decay = copy.deepcopy(model).eval().requires_grad_(False), decay
        self.pairs = list(self.model.parameters()), [p.detach() for p in model.parameters()]
        self.buffers = list(self.model.buffers()), list(model.buffers())

    @torch.no_grad()
    def update(self):
        torch._foreach_lerp_(*self.pairs, 1 - self.decay)

    @torch.no_grad()
    def finish(self):
        torch._foreach_copy_(*self.buffers)


def main():
    recipe = Recipe()
    torch.manual_seed(36)
    images, labels = photographs(recipe, torch.Generator().manual_seed(36))
    augment = Augment(recipe)
    model = network(recipe).to(memory_format=torch.channels_last)
    average = Average(model, recipe.decay)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=recipe.lr, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, recipe.epochs * recipe.images // recipe.batch_size
    )
    for epoch in range(recipe.epochs):
        total = torch.zeros(())
        for rows in torch.randperm(recipe.images).split(recipe.batch_size):
            batch = augment(images[rows]).contiguous(memory_format=torch.channels_last)
            loss = F.cross_entropy(model(batch), labels[rows], label_smoothing=recipe.smoothing)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            average.update()
            total += loss.detach()
        average.finish()
        print(f"epoch {epoch}: loss {total.item() * recipe.batch_size / recipe.images:.4f}")


if __name__ == "__main__":
    main()

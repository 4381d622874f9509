"""Differentiable search for an architecture: weights learn from one half of the data, the mixture from the other."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Subset

OPERATIONS = {
    "skip": lambda c: nn.Identity(),
    "avg_pool": lambda c: nn.Sequential(
        nn.AvgPool2d(3, 1, 1, count_include_pad=False), nn.BatchNorm2d(c, affine=False)
    ),
    "conv_3x3": lambda c: ReLUConvBN(c, c, 3),
    "conv_5x5": lambda c: ReLUConvBN(c, c, 5),
}


class ReLUConvBN(nn.Sequential):
    def __init__(self, inputs, outputs, kernel, stride=1):
        super().__init__(
            nn.ReLU(),
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(outputs, affine=False),
        )


class MixedOperation(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.choices = nn.ModuleList(make(channels) for make in OPERATIONS.values())

    def forward(self, x, weights):
        return sum(weight * choice(x) for weight, choice in zip(weights, self.choices))


class Cell(nn.Module):
    """Each node sums mixtures of all the earlier ones."""

    def __init__(self, inputs, channels, nodes, stride):
        super().__init__()
        self.nodes = nodes
        self.preprocess = ReLUConvBN(inputs, channels, 1, stride)
        self.edges = nn.ModuleList(MixedOperation(channels) for _ in range(nodes * (nodes + 1) // 2))

    def forward(self, x, weights):
        states = [self.preprocess(x)]
        edge = 0
        for _ in range(self.nodes):
            mixed = [self.edges[edge + k](state, weights[edge + k]) for k, state in enumerate(states)]
            edge += len(states)
            states.append(sum(mixed))
        return torch.cat(states[1:], dim=1)


class SuperNetwork(nn.Module):
    def __init__(self, channels, nodes, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))
        self.cells = nn.ModuleList([Cell(channels, channels, nodes, 1), Cell(nodes * channels, 2 * channels, nodes, 2)])
        self.classifier = nn.Linear(2 * nodes * channels, classes)
        self.alphas = nn.Parameter(1e-3 * torch.randn(nodes * (nodes + 1) // 2, len(OPERATIONS)))

    def weights(self):
        return [value for name, value in self.named_parameters() if name != "alphas"]

    def forward(self, x):
        mixture = self.alphas.softmax(dim=1)
        x = self.stem(x)
        for cell in self.cells:
            x = cell(x, mixture)
        return self.classifier(x.mean(dim=(2, 3)))

    def genotype(self):
        names = list(OPERATIONS)
        return [names[index] for index in self.alphas.argmax(dim=1).tolist()]


class TinyPictures(Dataset):
    """Stripes of a class's own direction and colour; cropped and mirrored at random."""

    def __init__(self, count, classes, seed, size=16):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, classes, (count,), generator=generator)
        angle = torch.pi * self.labels / classes
        grid = torch.arange(size + 4.0)
        wave = grid[None, :, None] * angle.sin()[:, None, None] + grid[None, None] * angle.cos()[:, None, None]
        colour = F.one_hot(self.labels % 3, 3)[:, :, None, None]
        noise = torch.randn(count, 3, size + 4, size + 4, generator=generator)
        self.pictures = (wave[:, None] * colour).sin() + 0.5 * noise
        self.size = size

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        top, left, mirror = torch.randint(0, 5, (3,)).tolist()
        picture = self.pictures[index, :, top : top + self.size, left : left + self.size]
        return picture.flip(2) if mirror > 2 else picture, self.labels[index]


def train(train_queue, valid_queue, model, w_optim, a_optim, args):
    losses = []
    for (inputs, targets), (search_inputs, search_targets) in zip(train_queue, valid_queue):
        a_optim.zero_grad()
        F.cross_entropy(model(search_inputs), search_targets).backward()
        a_optim.step()

        w_optim.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.weights(), args.grad_clip)
        w_optim.step()
        losses.append(loss.detach())
    return torch.stack(losses).mean().item()


def main(args):
    torch.manual_seed(args.seed)
    data = TinyPictures(args.pictures, args.classes, args.seed)
    half = args.pictures // 2
    queues = [
        DataLoader(Subset(data, rows), args.batch_size, shuffle=True, drop_last=True, num_workers=1)
        for rows in (range(half), range(half, args.pictures))
    ]
    model = SuperNetwork(args.init_channels, args.nodes, args.classes)
    w_optim = torch.optim.SGD(model.weights(), args.learning_rate, momentum=0.9, weight_decay=3e-4)
    a_optim = torch.optim.Adam([model.alphas], lr=3e-3, betas=(0.5, 0.999), weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(w_optim, args.epochs)
    for epoch in range(args.epochs):
        loss = train(*queues, model, w_optim, a_optim, args)
        scheduler.step()
        print(f"epoch {epoch}: loss {loss:.4f} genotype {' '.join(model.genotype())}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser("search")
    parser.add_argument("--pictures", type=int, default=2048)
    parser.add_argument("--classes", type=int, default=6)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--learning_rate", type=float, default=0.025)
    parser.add_argument("--grad_clip", type=float, default=5.0)
    parser.add_argument("--init_channels", type=int, default=8)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=2)
    main(parser.parse_args())

"""Image classification with stochastic weight averaging over the last epochs."""

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn


class Residual(nn.Module):
    def __init__(self, inp, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inp, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.skip = nn.Conv2d(inp, out, 1, stride, bias=False)

    def forward(self, x):
        h = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(h)) + self.skip(x))


def resnet(classes):
    return nn.Sequential(
        Residual(3, 12, 2),
        Residual(12, 24, 2),
        Residual(24, 48, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(48, classes),
    )


class Images:
    """Coloured gradients at an angle, one class for each angle; batches are slices of one tensor."""

    def __init__(self, count, classes, seed, batch_size):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, classes, (count,), generator=generator)
        angle = self.labels * 3.14 / classes
        axis = torch.linspace(-1, 1, 32)
        wave = torch.cos(angle)[:, None, None] * axis + torch.sin(angle)[:, None, None] * axis[:, None]
        tint = torch.rand(count, 3, 1, 1, generator=generator)
        self.images = tint * torch.sin(6 * wave)[:, None] + 0.5 * torch.randn(count, 3, 32, 32, generator=generator)
        self.batch_size = batch_size

    def __iter__(self):
        for rows in torch.randperm(len(self.labels)).split(self.batch_size):
            yield self.images[rows], self.labels[rows]


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in data)
    model.train()
    return right / len(data.labels)


def main(epochs=8, swa_start=2, classes=8):
    torch.manual_seed(80)
    train, test = Images(768, classes, 81, 32), Images(128, classes, 82, 128)
    model = resnet(classes)
    swa_model = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    scheduler = SWALR(optimizer, swa_lr=0.02, anneal_epochs=2)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        for images, labels in train:
            optimizer.zero_grad()
            loss = loss_fn(model(images), labels)
            loss.backward()
            optimizer.step()
        if epoch >= swa_start:
            swa_model.update_parameters(model)
            scheduler.step()
            update_bn(train, swa_model)
        print(f"epoch {epoch}: loss {loss.item():.4f}, test accuracy {accuracy(model, test):.3f}")
    print(f"averaged model: {accuracy(swa_model, test):.3f}")


if __name__ == "__main__":
    main()

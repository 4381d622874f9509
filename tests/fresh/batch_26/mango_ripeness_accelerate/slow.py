"""Ripeness of mangoes from photos: a new head on an encoder that was trained before, with accelerate."""

import argparse

import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

STAGES = ("green", "turning", "ripe", "overripe")


def photograph(count: int, side: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(14)
    stage = torch.randint(0, len(STAGES), (count,), generator=generator)
    axis = torch.linspace(-1, 1, side)
    fruit = ((axis[:, None] / 0.8) ** 2 + (axis[None, :] / 0.6) ** 2 < 1).float()
    colours = torch.tensor([[0.3, 0.6, 0.2], [0.6, 0.6, 0.2], [0.9, 0.6, 0.2], [0.6, 0.4, 0.2]])
    images = colours[stage][:, :, None, None] * fruit + 0.2 * torch.randn(count, 3, side, side, generator=generator)
    return TensorDataset(images, stage)


def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class Encoder(nn.Module):
    """A small residual network, as one would load it from a checkpoint."""

    def __init__(self, widths: tuple = (16, 32, 64)) -> None:
        super().__init__()
        self.stem = conv(3, widths[0], 2)
        self.down = nn.ModuleList(conv(a, b, 2) for a, b in zip(widths, widths[1:]))
        self.same = nn.ModuleList(nn.Sequential(conv(w, w), conv(w, w)) for w in widths[1:])
        self.out_features = widths[-1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for down, same in zip(self.down, self.same):
            x = down(x)
            x = x + same(x)
        return x


class RipenessModel(nn.Module):
    def __init__(self, encoder: Encoder, hidden: int = 128) -> None:
        super().__init__()
        self.backbone = encoder
        self.attend = nn.Conv2d(encoder.out_features, 1, 1)
        self.head = nn.Sequential(
            nn.Linear(encoder.out_features, hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, len(STAGES))
        )

    def train(self, mode: bool = True) -> "RipenessModel":
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.backbone(images)
        weights = self.attend(features).flatten(2).softmax(dim=2)
        pooled = (features.flatten(2) * weights).sum(dim=2)
        return self.head(pooled)


def evaluate(accelerator: Accelerator, model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    right = seen = 0
    with torch.inference_mode():
        for images, stage in loader:
            predicted, stage = accelerator.gather_for_metrics((model(images).argmax(dim=1), stage))
            right += (predicted == stage).sum().item()
            seen += len(stage)
    model.train()
    return right / seen


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--photos", type=int, default=1800)
    parser.add_argument("--side", type=int, default=80)
    parser.add_argument("--batch_size", type=int, default=24)
    parser.add_argument("--num_epochs", type=int, default=4)
    parser.add_argument("--learning_rate", type=float, default=2e-3)
    args = parser.parse_args()

    accelerator = Accelerator(cpu=True)
    set_seed(14)
    photos = photograph(args.photos, args.side)
    training, testing = torch.utils.data.random_split(photos, [args.photos - 200, 200])
    train_loader = DataLoader(training, batch_size=args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(testing, batch_size=50)

    model = RipenessModel(Encoder())
    head = [*model.attend.parameters(), *model.head.parameters()]
    optimizer = torch.optim.AdamW(head, lr=args.learning_rate)
    criterion = nn.CrossEntropyLoss()
    model, optimizer, train_loader, test_loader = accelerator.prepare(model, optimizer, train_loader, test_loader)

    for epoch in range(args.num_epochs):
        model.train()
        total = torch.zeros((), device=accelerator.device)
        for images, stage in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(images), stage)
            accelerator.backward(loss)
            optimizer.step()
            total += loss.detach()
        accuracy = evaluate(accelerator, model, test_loader)
        accelerator.print(f"epoch {epoch}: loss {total.item() / len(train_loader):.3f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()

"""Moths from a few pictures of each: a network trained elsewhere stays as it is, a new head learns their names."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SPECIES, SIDE = 12, 40


class Backbone(nn.Sequential):
    """Stands for a trained network; its weights come with the script's seed."""

    def __init__(self, width=32):
        layers, inner = [], 3
        for outer in (width, width, 2 * width):
            layers += [nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU(), nn.MaxPool2d(2)]
            inner = outer
        super().__init__(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.features = 4 * inner


class MothClassifier(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone.requires_grad_(False)
        self.head = nn.Sequential(
            nn.Linear(backbone.features, 512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, 512), nn.ReLU(),
            nn.Linear(512, SPECIES)
        )  # fmt: skip

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    @torch.no_grad()
    def extract(self, pictures):
        with torch.autocast(pictures.device.type, dtype=torch.bfloat16):
            return self.backbone(pictures).float()

    def forward(self, features):
        return self.head(features)


def collection(per_species):
    """Wings of a colour and a pattern of their own, on bark."""
    label = torch.arange(SPECIES).repeat_interleave(per_species)
    colour = torch.rand(SPECIES, 3)[label][..., None, None]
    stripes = torch.sin(torch.arange(SIDE) * (0.3 + 0.15 * label[:, None]))[:, None, None, :]
    return colour + 0.3 * stripes + 0.3 * torch.randn(len(label), 3, SIDE, SIDE), label


def main():
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pictures, labels = (tensor.to(device) for tensor in collection(64))
    model = MothClassifier(Backbone()).to(device)
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=1e-3, fused=True)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    chances = torch.Generator().manual_seed(1)
    features = torch.cat([model.eval().extract(part) for part in pictures.split(32)])
    loader = DataLoader(TensorDataset(features, labels), batch_size=32, shuffle=True, generator=chances)
    model.train()
    for epoch in range(10):
        total, right = 0.0, 0
        for inputs, targets in loader:
            scores = model(inputs)
            loss = criterion(scores, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            right += (scores.argmax(1) == targets).sum()
        print(f"epoch {epoch}: loss {total.item() / len(loader):.4f}, right {right.item() / len(labels):.3f}")


if __name__ == "__main__":
    main()

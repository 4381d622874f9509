"""Recognise alleys of an old town: NetVLAD descriptors of street views, trained with a triplet loss."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class StreetViews:
    """Each alley has a texture of its own; a view is a shifted, noisy crop of it."""

    def __init__(self, alleys, size, seed):
        self.size = size
        self.generator = torch.Generator().manual_seed(seed)
        coarse = torch.randn(alleys, 3, size // 4, size // 4, generator=self.generator)
        self.textures = F.interpolate(coarse, size=2 * size, mode="bilinear", align_corners=False)

    def views(self, alleys):
        top, left = torch.randint(0, self.size, (2,), generator=self.generator).tolist()
        crops = self.textures[alleys, :, top : top + self.size, left : left + self.size]
        return crops + 0.2 * torch.randn(crops.shape, generator=self.generator)

    def triplets(self, count):
        alleys = torch.randint(len(self.textures), (count,), generator=self.generator)
        shift = torch.randint(1, len(self.textures), (count,), generator=self.generator)
        others = (alleys + shift) % len(self.textures)
        return torch.cat([self.views(alleys), self.views(alleys), self.views(others)])


class Backbone(nn.Module):
    def __init__(self, width):
        super().__init__()
        layers, inputs = [], 3
        for outputs, stride in [(width // 2, 2), (width, 2), (width, 1)]:
            layers += [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True)]
            inputs = outputs
        self.layers = nn.Sequential(*layers)

    def forward(self, images):
        return self.layers(images)


class NetVLAD(nn.Module):
    def __init__(self, clusters, width):
        super().__init__()
        self.assign = nn.Conv2d(width, clusters, kernel_size=1)
        self.centroids = nn.Parameter(F.normalize(torch.randn(clusters, width), dim=1))

    def forward(self, features):
        features = F.normalize(features, dim=1)
        weights = self.assign(features).softmax(dim=1).flatten(2)
        descriptors = features.flatten(2)
        residual = descriptors.unsqueeze(1) - self.centroids[None, :, :, None]
        vlad = (residual * weights.unsqueeze(2)).sum(dim=-1)
        return F.normalize(F.normalize(vlad, dim=2).flatten(1), dim=1)


class PlaceNet(nn.Module):
    def __init__(self, width, clusters, size):
        super().__init__()
        self.backbone = Backbone(width)
        self.pool = NetVLAD(clusters, width)
        self.project = nn.Linear(clusters * width, size)

    def forward(self, images):
        return F.normalize(self.project(self.pool(self.backbone(images))), dim=1)


@torch.no_grad()
def recall_at_one(model, streets, alleys):
    model.eval()
    places = torch.arange(alleys)
    queries, gallery = model(streets.views(places)), model(streets.views(places))
    model.train()
    return ((queries @ gallery.T).argmax(dim=1) == places).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description="NetVLAD for alleys")
    parser.add_argument("--alleys", type=int, default=64)
    parser.add_argument("--image-size", type=int, default=48)
    parser.add_argument("--triplets", type=int, default=8)
    parser.add_argument("--clusters", type=int, default=16)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--descriptor", type=int, default=128)
    parser.add_argument("--margin", type=float, default=0.3)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--lr", type=float, default=1e-3)
    options = parser.parse_args()

    torch.manual_seed(4)
    streets = StreetViews(options.alleys, options.image_size, seed=4)
    model = PlaceNet(options.width, options.clusters, options.descriptor)
    criterion = nn.TripletMarginLoss(margin=options.margin)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr, fused=True)
    history = []
    for step in range(1, options.steps + 1):
        anchor, positive, negative = model(streets.triplets(options.triplets)).chunk(3)
        loss = criterion(anchor, positive, negative)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.detach())
        if step % 40 == 0:
            print(f"step {step}: loss {torch.stack(history[-40:]).mean().item():.4f}")
    print(f"recall at one: {recall_at_one(model, streets, options.alleys):.3f}")


if __name__ == "__main__":
    main()

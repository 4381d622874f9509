"""Families of perfumes from their chromatograms: an autoencoder whose codes are drawn to learned cluster centres."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Options:
    perfumes: int = 12_000
    peaks: int = 160
    families: int = 150
    code: int = 48
    hidden: int = 256
    batch_size: int = 256
    pretrain_epochs: int = 1
    epochs: int = 4
    lr: float = 1e-3
    weight: float = 0.1
    seed: int = 6


def chromatograms(options: Options) -> tuple[torch.Tensor, torch.Tensor]:
    """Each family is a mixture of a few accords; each perfume is its family with some dilution and noise."""
    generator = torch.Generator().manual_seed(options.seed)
    accords = torch.rand(40, options.peaks, generator=generator) ** 6
    shares = torch.rand(options.families, 40, generator=generator) ** 4
    family = torch.randint(0, options.families, (options.perfumes,), generator=generator)
    strength = 0.5 + torch.rand(options.perfumes, 1, generator=generator)
    peaks = strength * (shares @ accords)[family]
    peaks = torch.log1p(peaks + 0.05 * torch.rand(peaks.shape, generator=generator))
    return (peaks - peaks.mean(0)) / peaks.std(0), family


class AutoEncoder(nn.Module):
    def __init__(self, options: Options):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(options.peaks, options.hidden),
            nn.ReLU(),
            nn.Linear(options.hidden, options.hidden),
            nn.ReLU(),
            nn.Linear(options.hidden, options.code),
        )
        self.decoder = nn.Sequential(
            nn.Linear(options.code, options.hidden),
            nn.ReLU(),
            nn.Linear(options.hidden, options.hidden),
            nn.ReLU(),
            nn.Linear(options.hidden, options.peaks),
        )

    def forward(self, peaks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        codes = self.encoder(peaks)
        return codes, self.decoder(codes)


class ClusterLayer(nn.Module):
    """Soft assignments of codes to centres by Student's t distribution, as in deep embedded clustering."""

    def __init__(self, centres: torch.Tensor):
        super().__init__()
        self.centres = nn.Parameter(centres.clone())

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        distances = ((codes.unsqueeze(1) - self.centres.unsqueeze(0)) ** 2).sum(dim=2)
        kernel = 1.0 / (1.0 + distances)
        return kernel / kernel.sum(dim=1, keepdim=True)


def sharpened(assignments: torch.Tensor) -> torch.Tensor:
    weight = assignments**2 / assignments.sum(dim=0)
    return weight / weight.sum(dim=1, keepdim=True)


def pretrain(model: AutoEncoder, peaks: torch.Tensor, options: Options) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    for _ in range(options.pretrain_epochs):
        for rows in torch.randperm(len(peaks)).split(options.batch_size):
            optimizer.zero_grad()
            loss = F.mse_loss(model(peaks[rows])[1], peaks[rows])
            loss.backward()
            optimizer.step()
    print(f"pretrained: {loss.item():.4f}")


def refine(model: AutoEncoder, clusters: ClusterLayer, peaks: torch.Tensor, options: Options) -> None:
    optimizer = torch.optim.Adam([*model.parameters(), *clusters.parameters()], lr=options.lr)
    for epoch in range(options.epochs):
        rebuilt, drawn = torch.zeros(()), torch.zeros(())
        parts = torch.randperm(len(peaks)).split(options.batch_size)
        for rows in parts:
            codes, decoded = model(peaks[rows])
            assignments = clusters(codes)
            rebuilding = F.mse_loss(decoded, peaks[rows])
            drawing = F.kl_div(assignments.log(), sharpened(assignments).detach(), reduction="batchmean")
            optimizer.zero_grad()
            (rebuilding + options.weight * drawing).backward()
            optimizer.step()
            rebuilt += rebuilding.detach()
            drawn += drawing.detach()
        print(f"epoch {epoch}: rebuilding {rebuilt.item() / len(parts):.4f}, drawing {drawn.item() / len(parts):.4f}")


@torch.no_grad()
def purity(model: AutoEncoder, clusters: ClusterLayer, peaks: torch.Tensor, family: torch.Tensor) -> float:
    nearest = torch.cat([clusters(model.encoder(part)).argmax(dim=1) for part in peaks.split(1000)])
    table = torch.zeros(len(clusters.centres), int(family.max()) + 1)
    table.index_put_((nearest, family), torch.ones(len(family)), accumulate=True)
    return (table.max(dim=1).values.sum() / len(family)).item()


def main() -> None:
    options = Options()
    torch.manual_seed(options.seed)
    peaks, family = chromatograms(options)
    model = AutoEncoder(options)
    pretrain(model, peaks, options)
    with torch.no_grad():
        clusters = ClusterLayer(model.encoder(peaks[torch.randperm(len(peaks))[: options.families]]))
    refine(model, clusters, peaks, options)
    print(f"purity {purity(model, clusters, peaks, family):.4f}")


if __name__ == "__main__":
    main()

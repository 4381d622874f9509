"""Cluster the spectra of volcanic tremors: an autoencoder whose codes are drawn to cluster centres."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def make_spectra(count: int, bins: int, kinds: int, seed: int) -> torch.Tensor:
    """Spectra with the peaks of one of several kinds of tremor and some noise."""
    generator = torch.Generator().manual_seed(seed)
    frequency = torch.linspace(0, 1, bins)
    centres = torch.rand(kinds, 3, 1, generator=generator)
    widths = 0.01 + 0.05 * torch.rand(kinds, 3, 1, generator=generator)
    shapes = torch.exp(-(((frequency - centres) / widths) ** 2)).sum(dim=1)
    kind = torch.randint(0, kinds, (count,), generator=generator)
    gain = 0.5 + torch.rand(count, 1, generator=generator)
    return shapes[kind] * gain + 0.05 * torch.randn(count, bins, generator=generator)


def mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in zip(sizes[:-1], sizes[1:], strict=True):
        layers += [nn.Linear(inputs, outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers[:-1])


class ClusterHead(nn.Module):
    """Soft assignment of codes to centres by a Student's t kernel."""

    def __init__(self, clusters: int, dim: int, freedom: float = 1.0) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.randn(clusters, dim))
        self.freedom = freedom

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        squared = (codes.unsqueeze(1) - self.centres.unsqueeze(0)).pow(2).sum(dim=2)
        kernel = (1.0 + squared / self.freedom).pow(-(self.freedom + 1.0) / 2.0)
        return kernel / kernel.sum(dim=1, keepdim=True)


class TremorClusters(nn.Module):
    def __init__(self, bins: int, dim: int, clusters: int) -> None:
        super().__init__()
        self.encoder = mlp(bins, 256, 128, dim)
        self.decoder = mlp(dim, 128, 256, bins)
        self.head = ClusterHead(clusters, dim)

    def forward(self, spectra: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        codes = self.encoder(spectra)
        return self.decoder(codes), self.head(codes)


def target_distribution(assignment: torch.Tensor) -> torch.Tensor:
    """Sharper assignments, weighed by the size of the clusters."""
    weight = assignment.square() / assignment.sum(dim=0)
    return weight / weight.sum(dim=1, keepdim=True)


class ClusterTrainer:
    def __init__(self, model: TremorClusters, spectra: torch.Tensor, args: argparse.Namespace) -> None:
        self.model = model
        self.spectra = spectra
        self.args = args
        self.generator = torch.Generator().manual_seed(args.seed)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    def batches(self):
        order = torch.randperm(len(self.spectra), generator=self.generator)
        for rows in order.split(self.args.batch_size):
            yield self.spectra[rows]

    def step(self, batch: torch.Tensor, weight: float) -> torch.Tensor:
        restored, assignment = self.model(batch)
        target = target_distribution(assignment.detach())
        divergence = F.kl_div(assignment.log(), target, reduction="batchmean")
        loss = F.mse_loss(restored, batch) + weight * divergence
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def fit(self) -> None:
        for epoch in range(self.args.epochs):
            weight = self.args.weight * min(1.0, (epoch + 1) / 3)
            losses = [self.step(batch, weight) for batch in self.batches()]
            print(f"epoch {epoch}: loss {torch.stack(losses).mean().item():.5f}, used clusters {self.used()}")

    @torch.inference_mode()
    def used(self) -> int:
        codes = self.model.encoder(self.spectra[:1024])
        return self.model.head(codes).argmax(dim=1).unique().numel()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tremors", type=int, default=24576)
    parser.add_argument("--bins", type=int, default=256)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--clusters", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--weight", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=23)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    spectra = make_spectra(args.tremors, args.bins, kinds=40, seed=args.seed)
    ClusterTrainer(TremorClusters(args.bins, args.dim, args.clusters), spectra, args).fit()


if __name__ == "__main__":
    main()

"""A variational autoencoder of gene counts of single cells."""

from dataclasses import dataclass, field

import torch
from torch import nn
from torch.distributions import Normal, kl_divergence


@dataclass
class Plan:
    epochs: int = 60
    batch_size: int = 128
    lr: float = 1e-3
    history: dict = field(default_factory=lambda: {"elbo_train": [], "elbo_validation": []})


def make_counts(cells, genes, seed):
    gen = torch.Generator().manual_seed(seed)
    programmes = torch.rand(10, genes, generator=gen) * 2
    usage = torch.rand(cells, 10, generator=gen) ** 3
    return torch.poisson(usage @ programmes, generator=gen)


class VAE(nn.Module):
    def __init__(self, genes, latent=10, hidden=128):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(genes, hidden), nn.BatchNorm1d(hidden), nn.ReLU())
        self.mean, self.variance = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.BatchNorm1d(hidden), nn.ReLU())
        self.scale = nn.Linear(hidden, genes)
        self.dispersion = nn.Parameter(torch.zeros(genes))

    def forward(self, counts):
        library = counts.sum(1, keepdim=True)
        h = self.encoder(torch.log1p(counts))
        posterior = Normal(self.mean(h), torch.exp(0.5 * self.variance(h)) + 1e-4)
        rate = library * self.scale(self.decoder(posterior.rsample())).softmax(dim=1) + 1e-8
        theta = self.dispersion.exp()
        total = torch.log(theta + rate)
        likelihood = (
            theta * (self.dispersion - total)
            + counts * (torch.log(rate) - total)
            + torch.lgamma(counts + theta)
            - torch.lgamma(theta)
            - torch.lgamma(counts + 1)
        )
        prior = Normal(torch.zeros_like(posterior.loc), torch.ones_like(posterior.loc))
        return -likelihood.sum(1), kl_divergence(posterior, prior).sum(1)


class TrainingPlan:
    def __init__(self, model, counts, plan):
        split = int(0.9 * len(counts))
        self.model, self.plan = model, plan
        self.train_cells, self.validation_cells = counts[:split], counts[split:]
        self.optimizer = torch.optim.Adam(model.parameters(), lr=plan.lr, eps=0.01)

    def training_step(self, counts):
        reconstruction, kl = self.model(counts)
        loss = (reconstruction + kl).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach() * len(counts)

    @torch.no_grad()
    def elbo(self, cells):
        self.model.eval()
        total = sum(torch.add(*self.model(part)).sum() for part in cells.split(self.plan.batch_size))
        self.model.train()
        return total.item() / len(cells)

    def fit(self):
        for epoch in range(self.plan.epochs):
            total = torch.zeros(())
            for rows in torch.randperm(len(self.train_cells)).split(self.plan.batch_size):
                total += self.training_step(self.train_cells[rows])
            self.plan.history["elbo_train"].append(self.elbo(self.train_cells))
            self.plan.history["elbo_validation"].append(self.elbo(self.validation_cells))
            print(f"epoch {epoch}:", {name: round(values[-1], 2) for name, values in self.plan.history.items()})


if __name__ == "__main__":
    torch.manual_seed(0)
    TrainingPlan(VAE(400), make_counts(2300, 400, seed=8), Plan()).fit()

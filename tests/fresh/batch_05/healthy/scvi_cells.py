"""A variational autoencoder for counts of genes in single cells, whose table is kept sparse."""

import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.utils.data import DataLoader, Dataset


class CellDataset(Dataset):
    """Counts as a compressed table with one row for each cell, and the experiment that the cell comes from."""

    def __init__(self, cells, genes, experiments, seed):
        generator = torch.Generator().manual_seed(seed)
        kinds = torch.randint(0, 8, (cells,), generator=generator)
        experiment = torch.randint(0, experiments, (cells,), generator=generator)
        rates = torch.rand(8, genes, generator=generator).pow(12) * 6
        effect = 0.7 + 0.6 * torch.rand(experiments, genes, generator=generator)
        counts = torch.poisson(rates[kinds] * effect[experiment], generator=generator)
        self.counts = counts.to_sparse_csr()
        self.library = counts.sum(dim=1, keepdim=True)
        self.experiment = experiment

    def __len__(self):
        return len(self.experiment)

    def __getitems__(self, rows):
        rows = torch.tensor(rows)
        starts, ends = self.counts.crow_indices()[rows], self.counts.crow_indices()[rows + 1]
        lengths = ends - starts
        row = torch.repeat_interleave(torch.arange(len(rows)), lengths)
        entry = torch.arange(len(row)) + torch.repeat_interleave(starts - lengths.cumsum(0) + lengths, lengths)
        counts = torch.zeros(len(rows), self.counts.shape[1])
        counts[row, self.counts.col_indices()[entry]] = self.counts.values()[entry]
        return counts, self.library[rows], self.experiment[rows]


def layers(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU(), nn.Dropout(0.1))


class Decoder(nn.Module):
    def __init__(self, genes, experiments, latent, hidden):
        super().__init__()
        self.net = layers(latent + experiments, hidden)
        self.scale = nn.Linear(hidden, genes)
        self.log_dispersion = nn.Parameter(torch.zeros(genes))

    def forward(self, z, experiment, library):
        hidden = self.net(torch.cat((z, experiment), dim=1))
        return library * self.scale(hidden).softmax(dim=1), self.log_dispersion.exp()


class SCVI(nn.Module):
    def __init__(self, genes, experiments, latent=10, hidden=128):
        super().__init__()
        self.experiments = experiments
        self.encoder = layers(genes, hidden)
        self.mean, self.log_scale = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.decoder = Decoder(genes, experiments, latent, hidden)

    def forward(self, counts, library, experiment):
        hidden = self.encoder(counts.log1p())
        posterior = Normal(self.mean(hidden), self.log_scale(hidden).clamp(-6, 3).exp())
        one_hot = nn.functional.one_hot(experiment, self.experiments).float()
        rate, dispersion = self.decoder(posterior.rsample(), one_hot, library)
        prior = Normal(torch.zeros_like(posterior.loc), torch.ones_like(posterior.scale))
        return rate, dispersion, kl_divergence(posterior, prior).sum(dim=1)


def negative_log_likelihood(counts, rate, dispersion, eps=1e-8):
    """Of a negative binomial with mean `rate`; what depends on the counts alone is left out."""
    log_total = (rate + dispersion + eps).log()
    terms = counts * ((rate + eps).log() - log_total) + dispersion * ((dispersion + eps).log() - log_total)
    terms = terms + torch.lgamma(counts + dispersion) - torch.lgamma(dispersion)
    return -terms.sum(dim=1)


class TrainingPlan:
    """Weighs the divergence more and more during the first epochs."""

    def __init__(self, model, lr=1e-3, warmup=5):
        self.model, self.warmup = model, warmup
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr, eps=0.01, weight_decay=1e-6, fused=True)

    def training_step(self, batch, epoch):
        counts, library, experiment = batch
        rate, dispersion, divergence = self.model(counts, library, experiment)
        weight = min(1.0, (epoch + 1) / self.warmup)
        return (negative_log_likelihood(counts, rate, dispersion) + weight * divergence).mean()

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            total = torch.zeros(())
            for batch in loader:
                loss = self.training_step(batch, epoch)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                total += loss.detach()
            print(f"epoch {epoch}: loss {total.item() / len(loader):.2f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    GENES, EXPERIMENTS = 1200, 3
    dataset = CellDataset(4096, GENES, EXPERIMENTS, seed=60)
    loader = DataLoader(dataset, batch_size=128, shuffle=True, drop_last=True, collate_fn=tuple)
    TrainingPlan(SCVI(GENES, EXPERIMENTS)).fit(loader, epochs=14)

"""Risk of readmission from vital signs, trained with clipped and noised gradients for privacy."""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_patients(count, features, seed):
    generator = torch.Generator().manual_seed(seed)
    vitals = torch.randn(count, features, generator=generator)
    weights = torch.randn(features, generator=generator) / features**0.5
    risk = torch.sigmoid(2 * vitals @ weights + vitals[:, 0] * vitals[:, 1])
    return vitals, torch.bernoulli(risk, generator=generator)


class RiskNet(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )

    def forward(self, x):
        return self.layers(x).squeeze(-1)


class PrivateOptimizer:
    """Clips the gradient of each patient, adds noise to their sum and hands it to another optimizer."""

    def __init__(self, model, optimizer, max_norm, noise):
        self.model = model
        self.optimizer = optimizer
        self.max_norm = max_norm
        self.noise = noise
        self.parameters = dict(model.named_parameters())

    def sample_loss(self, parameters, x, y):
        output = torch.func.functional_call(self.model, parameters, (x.unsqueeze(0),))
        return F.binary_cross_entropy_with_logits(output, y.unsqueeze(0))

    def sample_gradients(self, x, y):
        detached = {name: value.detach() for name, value in self.parameters.items()}
        gradient = torch.func.grad(self.sample_loss)
        samples = [gradient(detached, one, label) for one, label in zip(x, y)]
        return {name: torch.stack([sample[name] for sample in samples]) for name in detached}

    def step(self, x, y):
        gradients = self.sample_gradients(x, y)
        squares = sum(g.flatten(1).pow(2).sum(dim=1) for g in gradients.values())
        factors = (self.max_norm / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        for name, value in self.parameters.items():
            total = torch.einsum("n,n...->...", factors, gradients[name])
            total += self.noise * self.max_norm * torch.randn_like(total)
            value.grad = total / len(x)
        self.optimizer.step()
        return factors


class Accountant:
    """A rough bound, enough to compare runs with."""

    def __init__(self, rate, noise, delta=1e-5):
        self.rate, self.noise, self.delta, self.steps = rate, noise, delta, 0

    def step(self):
        self.steps += 1

    @property
    def epsilon(self):
        return self.rate * math.sqrt(2 * self.steps * math.log(1 / self.delta)) / self.noise


def evaluate(model, vitals, outcome):
    model.eval()
    with torch.no_grad():
        scores = model(vitals)
    model.train()
    ranks = scores.argsort().argsort().float() + 1
    positive = outcome > 0
    count = positive.sum()
    return ((ranks[positive].sum() - count * (count + 1) / 2) / (count * (~positive).sum())).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patients", type=int, default=4000)
    parser.add_argument("--features", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--max-norm", type=float, default=1.0)
    parser.add_argument("--noise", type=float, default=0.6)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=23)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    vitals, outcome = make_patients(args.patients, args.features, args.seed)
    cut = int(0.8 * args.patients)
    model = RiskNet(args.features, args.hidden)
    private = PrivateOptimizer(
        model, torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9), args.max_norm, args.noise
    )
    accountant = Accountant(args.batch_size / cut, args.noise)
    for epoch in range(args.epochs):
        clipped = []
        for index in torch.randperm(cut).split(args.batch_size):
            factors = private.step(vitals[index], outcome[index])
            accountant.step()
            clipped.append((factors < 1).float().mean())
        auc = evaluate(model, vitals[cut:], outcome[cut:])
        share = torch.stack(clipped).mean().item()
        print(f"epoch {epoch}: AUC {auc:.3f}, clipped {share:.2f}, epsilon {accountant.epsilon:.2f}")


if __name__ == "__main__":
    main()

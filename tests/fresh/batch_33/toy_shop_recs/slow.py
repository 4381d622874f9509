"""Which toys a family buys next: a neural factorisation of implicit feedback with drawn negatives."""

from argparse import ArgumentParser

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

DEFAULTS = {
    "families": 5000,
    "toys": 1800,
    "purchases": 60000,
    "dim": 48,
    "hidden": (768, 384),
    "negatives": 1,
    "batch_size": 256,
    "epochs": 1,
    "lr": 1e-3,
    "seed": 77,
}


def simulate_purchases(cfg):
    rng = np.random.default_rng(cfg["seed"])
    taste = rng.integers(0, 12, size=cfg["families"])
    kind = rng.integers(0, 12, size=cfg["toys"])
    shelves = [np.flatnonzero(kind == k) for k in range(12)]
    families = rng.integers(0, cfg["families"], size=cfg["purchases"])
    fitting = rng.random(cfg["purchases"]) < 0.8
    toys = np.array(
        [rng.choice(shelves[taste[f]]) if fit else rng.integers(cfg["toys"]) for f, fit in zip(families, fitting)]
    )
    return torch.from_numpy(families), torch.from_numpy(toys)


class Sampler:
    """Batches of purchases, each followed by toys that were drawn at random."""

    def __init__(self, families, toys, cfg):
        self.families, self.toys, self.cfg = families, toys, cfg
        self.generator = torch.Generator().manual_seed(cfg["seed"])

    def __iter__(self):
        cfg = self.cfg
        order = torch.randperm(len(self.families), generator=self.generator)
        for index in order.split(cfg["batch_size"]):
            family, toy = self.families[index], self.toys[index]
            drawn = torch.randint(cfg["toys"], (len(index) * cfg["negatives"],), generator=self.generator)
            yield (
                torch.cat([family, family.repeat(cfg["negatives"])]),
                torch.cat([toy, drawn]),
                torch.cat([torch.ones(len(index)), torch.zeros(len(drawn))]),
            )


class OneSide(nn.Module):
    """Latent factors and a bias for each member of one side, families or toys."""

    def __init__(self, members, dim):
        super().__init__()
        self.members = members
        self.factors = nn.Parameter(torch.randn(members, dim) * 0.05)
        self.bias = nn.Parameter(torch.zeros(members))

    def forward(self, ids):
        factors = F.one_hot(ids, self.members).float() @ self.factors
        return factors, self.bias[ids]


class NeuralFactorisation(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.family = OneSide(cfg["families"], cfg["dim"])
        self.toy = OneSide(cfg["toys"], cfg["dim"])
        widths = [3 * cfg["dim"], *cfg["hidden"]]
        layers = []
        for before, after in zip(widths, widths[1:]):
            layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(0.1)]
        self.tower = nn.Sequential(*layers, nn.Linear(widths[-1], 1))

    def forward(self, family, toy):
        f, f_bias = self.family(family)
        t, t_bias = self.toy(toy)
        deep = self.tower(torch.cat([f, t, f * t], dim=1)).squeeze(1)
        return deep + f_bias + t_bias


def train(cfg):
    torch.manual_seed(cfg["seed"])
    families, toys = simulate_purchases(cfg)
    sampler = Sampler(families, toys, cfg)
    model = NeuralFactorisation(cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
    for epoch in range(cfg["epochs"]):
        running, seen = torch.zeros(()), 0
        for family, toy, bought in sampler:
            loss = F.binary_cross_entropy_with_logits(model(family, toy), bought)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.detach() * len(bought)
            seen += len(bought)
        print(f"epoch {epoch}: cross entropy {running.item() / seen:.4f}")
    return model


@torch.no_grad()
def recommend(model, family, toys, best=5):
    model.eval()
    scores = model(torch.full((toys,), family), torch.arange(toys))
    return scores.topk(best).indices.tolist()


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    for key in ("families", "toys", "purchases", "dim", "batch_size", "epochs"):
        parser.add_argument(f"--{key}", type=int, default=DEFAULTS[key])
    config = {**DEFAULTS, **vars(parser.parse_args())}
    trained = train(config)
    print("for family 0:", recommend(trained, 0, config["toys"]))

"""A model of the world of a skateboarder: recurrent state with Gaussian prior and posterior, learned from rollouts."""

import argparse
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Independent, Normal


@dataclass
class WorldConfig:
    episodes: int = 192
    ticks: int = 120
    window: int = 24
    batch: int = 12
    hidden: int = 48
    latent: int = 12
    free_nats: float = 1.0
    steps: int = 360
    report: int = 120
    lr: float = 1e-3
    check_distributions: bool = True
    seed: int = 1999


def ride(config: WorldConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Random pushes in a half-pipe: observations with noise, actions, and a reward for height."""
    generator = torch.Generator().manual_seed(config.seed)
    angle = 0.5 * torch.randn(config.episodes, generator=generator)
    speed = torch.zeros(config.episodes)
    push = torch.zeros(config.episodes, 2)
    rows = []
    for _ in range(config.ticks):
        push = (0.8 * push + 0.5 * torch.randn(push.shape, generator=generator)).clamp(-1, 1)
        speed = 0.99 * speed + 0.1 * (push[:, 0] - 2 * torch.sin(angle)) + 0.02 * push[:, 1] * angle
        angle = (angle + 0.1 * speed).clamp(-1.5, 1.5)
        seen = torch.stack([angle.sin(), angle.cos(), speed, angle.sin() * speed, push[:, 1] * angle], dim=1)
        seen = seen + 0.05 * torch.randn(seen.shape, generator=generator)
        rows.append((seen, push, 1 - angle.cos()))
    seen, pushes, rewards = (torch.stack(column, dim=1) for column in zip(*rows))
    return seen, pushes, rewards


class Replay:
    def __init__(self, config: WorldConfig):
        self.seen, self.pushes, self.rewards = ride(config)
        self.window = config.window
        self.generator = torch.Generator().manual_seed(config.seed + 1)

    def sample(self, batch: int) -> tuple[Tensor, Tensor, Tensor]:
        episodes, ticks = self.rewards.shape
        episode = torch.randint(episodes, (batch, 1), generator=self.generator)
        start = torch.randint(ticks - self.window + 1, (batch, 1), generator=self.generator)
        tick = start + torch.arange(self.window)
        return self.seen[episode, tick], self.pushes[episode, tick], self.rewards[episode, tick]


class WorldModel(nn.Module):
    def __init__(self, observation: int, action: int, config: WorldConfig):
        super().__init__()
        hidden, latent = config.hidden, config.latent
        self.config = config
        self.encoder = nn.Sequential(nn.Linear(observation, hidden), nn.ELU(), nn.Linear(hidden, hidden), nn.ELU())
        self.inner = nn.Linear(latent + action, hidden)
        self.memory = nn.GRUCell(hidden, hidden)
        self.prior = nn.Linear(hidden, 2 * latent)
        self.posterior = nn.Linear(2 * hidden, 2 * latent)
        self.decoder = nn.Sequential(nn.Linear(hidden + latent, hidden), nn.ELU(), nn.Linear(hidden, observation))
        self.reward = nn.Sequential(nn.Linear(hidden + latent, hidden), nn.ELU(), nn.Linear(hidden, 1))

    def gaussian(self, mean: Tensor, scale: Tensor) -> Independent:
        check = self.config.check_distributions
        return Independent(Normal(mean, scale, validate_args=check), 1, validate_args=check)

    def state(self, parameters: Tensor) -> Independent:
        mean, raw = parameters.chunk(2, dim=-1)
        return self.gaussian(mean, F.softplus(raw) + 0.1)

    def observe(self, seen: Tensor, pushes: Tensor) -> tuple[Tensor, Tensor]:
        """Filters the window tick by tick; gives the features of all ticks and sampled divergences."""
        codes = self.encoder(seen)
        hidden = seen.new_zeros(len(seen), self.config.hidden)
        latent = seen.new_zeros(len(seen), self.config.latent)
        features, divergences = [], []
        for tick in range(seen.shape[1]):
            hidden = self.memory(F.elu(self.inner(torch.cat([latent, pushes[:, tick]], dim=1))), hidden)
            prior = self.state(self.prior(hidden))
            posterior = self.state(self.posterior(torch.cat([hidden, codes[:, tick]], dim=1)))
            latent = posterior.rsample()
            features.append(torch.cat([hidden, latent], dim=1))
            divergences.append(posterior.log_prob(latent) - prior.log_prob(latent))
        return torch.stack(features, dim=1), torch.stack(divergences, dim=1)

    def loss(self, seen: Tensor, pushes: Tensor, rewards: Tensor) -> dict[str, Tensor]:
        features, divergence = self.observe(seen, pushes)
        picture = self.gaussian(self.decoder(features), torch.full_like(seen, 0.1))
        gain = self.reward(features).squeeze(-1)
        parts = {
            "picture": -picture.log_prob(seen).mean(),
            "reward": F.mse_loss(gain, rewards),
            "divergence": divergence.mean().clamp(min=self.config.free_nats),
        }
        parts["total"] = parts["picture"] + 10 * parts["reward"] + parts["divergence"]
        return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=WorldConfig.steps)
    parser.add_argument("--seed", type=int, default=WorldConfig.seed)
    args = parser.parse_args()
    config = WorldConfig(steps=args.steps, seed=args.seed)

    torch.manual_seed(config.seed)
    replay = Replay(config)
    model = WorldModel(replay.seen.shape[-1], replay.pushes.shape[-1], config)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, eps=1e-5, fused=True)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(1, config.steps + 1):
            parts = model.loss(*replay.sample(config.batch))
            optimizer.zero_grad()
            parts["total"].backward()
            nn.utils.clip_grad_norm_(model.parameters(), 100.0)
            optimizer.step()
            if step % config.report == 0:
                print(f"step {step}: " + ", ".join(f"{name} {part.item():.4f}" for name, part in parts.items()))
                torch.save({"step": step, "model": model.state_dict()}, os.path.join(folder, "world.pt"))


if __name__ == "__main__":
    main()

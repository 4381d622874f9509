"""A Lyapunov function and a controller for a balancing unicycle, learned together from sampled states."""

import argparse
import os
import shutil
import tempfile

import torch
import torch.nn.functional as F
from torch import nn


class Unicycle:
    """Wheel and pole in a plane: position, lean, velocity and rate of the lean, moved on by one small step of time."""

    size = 4

    def __init__(self, dt: float = 0.05, gravity: float = 9.81, length: float = 0.7, mass: float = 0.4):
        self.dt, self.gravity, self.length, self.mass = dt, gravity, length, mass

    def step(self, state: torch.Tensor, force: torch.Tensor) -> torch.Tensor:
        position, lean, speed, rate = state.unbind(-1)
        sine, cosine = torch.sin(lean), torch.cos(lean)
        pushed = (force.squeeze(-1) + self.mass * self.length * rate.square() * sine) / (1 + self.mass)
        turning = (self.gravity * sine - cosine * pushed) / (self.length * (4 / 3 - self.mass * cosine.square() / 1.4))
        drive = pushed - self.mass * self.length * turning * cosine / (1 + self.mass)
        speed, rate = speed + self.dt * drive, rate + self.dt * turning
        return torch.stack([position + self.dt * speed, lean + self.dt * rate, speed, rate], dim=-1)


class Controller(nn.Module):
    def __init__(self, hidden: int, limit: float):
        super().__init__()
        self.limit = limit
        self.net = nn.Sequential(
            nn.Linear(Unicycle.size, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        return self.limit * torch.tanh(self.net(state) - self.net(torch.zeros_like(state)))


class Lyapunov(nn.Module):
    """Positive but at the origin: the square of a network's difference to its value there, and a small bowl."""

    def __init__(self, hidden: int, features: int):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(Unicycle.size, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, features),
        )
        self.bowl = nn.Parameter(0.1 * torch.eye(Unicycle.size))

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        raised = self.net(state) - self.net(torch.zeros_like(state))
        return raised.square().sum(-1) + (state @ self.bowl).square().sum(-1)


class DecreaseLoss(nn.Module):
    """How much the function fails to fall along the motion, on average over the states."""

    def __init__(self, system: Unicycle, controller: Controller, lyapunov: Lyapunov, rate: float, margin: float):
        super().__init__()
        self.system, self.controller, self.lyapunov = system, controller, lyapunov
        self.rate, self.margin = rate, margin

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        violations = []
        for state in states:
            following = self.system.step(state, self.controller(state))
            change = self.lyapunov(following) - (1 - self.rate) * self.lyapunov(state)
            violations.append(F.relu(change + self.margin * state.square().sum(-1)))
        return torch.stack(violations).mean()


class StateSampler:
    """Half of the states are uniform in a box, half lie near those that failed before."""

    def __init__(self, batch_size: int, box: list[float], seed: int):
        self.batch_size = batch_size
        self.box = torch.tensor(box)
        self.generator = torch.Generator().manual_seed(seed)
        self.hard = self.uniform(batch_size // 2)

    def uniform(self, count: int) -> torch.Tensor:
        return (2 * torch.rand(count, len(self.box), generator=self.generator) - 1) * self.box

    def sample(self) -> torch.Tensor:
        noise = 0.05 * torch.randn(self.hard.shape, generator=self.generator) * self.box
        return torch.cat([self.uniform(self.batch_size - len(self.hard)), self.hard + noise])

    @torch.no_grad()
    def renew(self, system: Unicycle, controller: Controller, lyapunov: Lyapunov) -> float:
        candidates = self.uniform(4096)
        following = system.step(candidates, controller(candidates))
        change = lyapunov(following) - lyapunov(candidates)
        self.hard = candidates[change.topk(len(self.hard)).indices]
        return (change < 0).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--features", type=int, default=16)
    parser.add_argument("--limit", type=float, default=25.0)
    parser.add_argument("--rate", type=float, default=0.04)
    parser.add_argument("--margin", type=float, default=0.02)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--renew-every", type=int, default=20)
    parser.add_argument("--seed", type=int, default=77)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    system = Unicycle()
    controller = Controller(args.hidden, args.limit)
    lyapunov = Lyapunov(args.hidden, args.features)
    criterion = DecreaseLoss(system, controller, lyapunov, args.rate, args.margin)
    sampler = StateSampler(args.batch_size, [1.0, 0.6, 1.0, 1.5], args.seed)
    parameters = [*controller.parameters(), *lyapunov.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=args.lr)

    folder = tempfile.mkdtemp()
    try:
        for step in range(1, args.steps + 1):
            loss = criterion(sampler.sample())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 5.0)
            optimizer.step()
            if step % args.renew_every == 0:
                falling = sampler.renew(system, controller, lyapunov)
                print(f"step {step}: loss {loss.item():.5f}, falls in {falling:.1%} of the box")
        torch.save(
            {"controller": controller.state_dict(), "lyapunov": lyapunov.state_dict()}, os.path.join(folder, "last.pt")
        )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

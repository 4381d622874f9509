"""A differentiable Kalman filter: a network learns to measure a robot's place from camera images."""

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd.functional import jacobian


@dataclass
class Setup:
    walks: int = 256
    length: int = 5
    size: int = 32
    batch: int = 8
    steps: int = 165
    lr: float = 2e-3
    seed: int = 77


def simulate(setup):
    """Robots that drive curves. Each image shows two beacons as seen from the robot."""
    generator = torch.Generator().manual_seed(setup.seed)
    n = setup.walks
    state = torch.cat(
        [torch.rand(n, 2, generator=generator) - 0.5, torch.rand(n, 1, generator=generator) * 6.28], dim=1
    )
    controls = torch.randn(n, setup.length, 2, generator=generator) * torch.tensor([0.04, 0.3]) + torch.tensor(
        [0.1, 0.0]
    )
    states, images = [], []
    for t in range(setup.length):
        state = drive(state, controls[:, t]) + 0.01 * torch.randn(n, 3, generator=generator)
        states.append(state)
        images.append(camera(state, setup.size) + 0.1 * torch.randn(n, 1, setup.size, setup.size, generator=generator))
    return torch.stack(states, 1), controls, torch.stack(images, 1)


def drive(state, control):
    x, y, heading = state.unbind(-1)
    speed, turn = control.unbind(-1)
    return torch.stack([x + speed * heading.cos(), y + speed * heading.sin(), heading + turn], dim=-1)


def camera(state, size):
    axis = torch.linspace(-2, 2, size)
    picture = torch.zeros(len(state), size, size)
    for beacon in ((0.8, 0.8), (-0.8, 0.3)):
        dx, dy = beacon[0] - state[:, 0], beacon[1] - state[:, 1]
        cos, sin = state[:, 2].cos(), state[:, 2].sin()
        ahead, left = dx * cos + dy * sin, dy * cos - dx * sin
        picture += torch.exp(
            -((axis[None, :, None] - ahead[:, None, None]) ** 2 + (axis - left[:, None, None]) ** 2) * 8
        )
    return picture[:, None]


class Sensor(nn.Module):
    """Reads a few numbers off an image."""

    def __init__(self, outputs, size, width=16):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.out = nn.Linear(2 * width * (size // 4) ** 2, outputs)

    def forward(self, image):
        return self.out(self.body(image))


class LearnedFilter(nn.Module):
    def __init__(self, setup, measured=3):
        super().__init__()
        self.sensor = Sensor(measured, setup.size)
        self.predict_measurement = nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, measured))
        self.log_process = nn.Parameter(torch.full((3,), -4.0))
        self.log_sensor = nn.Parameter(torch.full((measured,), -1.0))

    def expect(self, state):
        x, y, heading = state.unbind(-1)
        return self.predict_measurement(torch.stack([x, y, heading.cos(), heading.sin()], dim=-1))

    def linearise(self, function, state):
        """The Jacobian of each sample's output with respect to its own state."""
        summed = jacobian(lambda s: function(s).sum(0), state, create_graph=True)
        return summed.transpose(0, 1)

    def forward(self, start, controls, images):
        batch, length = controls.shape[:2]
        state = start
        covariance = 0.02 * torch.eye(3).expand(batch, 3, 3)
        readings = self.sensor(images.flatten(0, 1)).view(batch, length, -1)
        process, noise = self.log_process.exp().diag(), self.log_sensor.exp().diag()
        path = []
        for t in range(length):
            move = self.linearise(partial(drive, control=controls[:, t]), state)
            state = drive(state, controls[:, t])
            covariance = move @ covariance @ move.mT + process
            sight = self.linearise(self.expect, state)
            surprise = readings[:, t] - self.expect(state)
            total = sight @ covariance @ sight.mT + noise
            gain = torch.linalg.solve(total, sight @ covariance).mT
            state = state + (gain @ surprise.unsqueeze(-1)).squeeze(-1)
            covariance = covariance - gain @ sight @ covariance
            path.append(state)
        return torch.stack(path, dim=1)


def main():
    setup = Setup()
    torch.manual_seed(setup.seed)
    states, controls, images = simulate(setup)
    model = LearnedFilter(setup)
    optimizer = torch.optim.Adam(model.parameters(), lr=setup.lr)
    total = torch.zeros(())
    for step in range(1, setup.steps + 1):
        rows = torch.randint(setup.walks, (setup.batch,))
        start = states[rows, 0] - F.pad(controls[rows, 0, :1], (0, 2)) + 0.1 * torch.randn(setup.batch, 3)
        path = model(start, controls[rows], images[rows])
        loss = F.smooth_l1_loss(path[..., :2], states[rows][..., :2]) * 10
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.detach()
        if step % 55 == 0:
            print(f"step {step} loss {total.item() / 55:.4f}")
            total.zero_()


if __name__ == "__main__":
    main()

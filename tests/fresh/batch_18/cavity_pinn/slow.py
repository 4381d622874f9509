"""The flow in a box whose lid starts to move, as a physics-informed network: Navier-Stokes residuals and walls."""

import argparse

import torch
from torch import nn


class Field(nn.Module):
    """Velocities u and v and the pressure p at a place and a time."""

    def __init__(self, width=64, depth=5):
        super().__init__()
        sizes = [3] + [width] * depth
        layers = []
        for a, b in zip(sizes, sizes[1:]):
            layers += [nn.Linear(a, b), nn.Tanh()]
        self.net = nn.Sequential(*layers, nn.Linear(width, 3))
        for layer in self.net:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight)
                nn.init.zeros_(layer.bias)

    def forward(self, x, y, t):
        return self.net(torch.cat([x, y, t], dim=1)).split(1, dim=1)


def derivatives(field, *coordinates):
    """Of a field, after each of the coordinates."""
    ones = torch.ones_like(field)
    return [torch.autograd.grad(field, c, ones, create_graph=True)[0] for c in coordinates]


class CavityFlow:
    def __init__(self, model, reynolds, points, wall_points):
        self.model, self.viscosity = model, 1.0 / reynolds
        self.points, self.wall_points = points, wall_points

    def residual(self):
        """Momentum and mass at points that are drawn anew."""
        x, y, t = (torch.rand(self.points, 1, requires_grad=True) for _ in range(3))
        u, v, p = self.model(x, y, t)
        u_x, u_y, u_t = derivatives(u, x, y, t)
        v_x, v_y, v_t = derivatives(v, x, y, t)
        p_x, p_y = derivatives(p, x, y)
        (u_xx,), (u_yy,) = derivatives(u_x, x), derivatives(u_y, y)
        (v_xx,), (v_yy,) = derivatives(v_x, x), derivatives(v_y, y)
        momentum_x = u_t + u * u_x + v * u_y + p_x - self.viscosity * (u_xx + u_yy)
        momentum_y = v_t + u * v_x + v * v_y + p_y - self.viscosity * (v_xx + v_yy)
        return momentum_x.square().mean() + momentum_y.square().mean() + (u_x + v_y).square().mean()

    def walls(self):
        """No slip on three walls, and the lid moves, more slowly near the corners."""
        along = torch.rand(self.wall_points, 1)
        zeros, ones = torch.zeros_like(along), torch.ones_like(along)
        x = torch.cat([along, along, zeros, ones])
        y = torch.cat([zeros, ones, along, along])
        u, v, _ = self.model(x, y, torch.rand_like(x))
        lid = torch.cat([zeros, 1 - (2 * along - 1) ** 16, zeros, zeros])
        return (u - lid).square().mean() + v.square().mean()

    def rest(self):
        """Nothing moves at first."""
        x, y = torch.rand(2, self.wall_points, 1)
        u, v, _ = self.model(x, y, torch.zeros_like(x))
        return u.square().mean() + v.square().mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=204)
    parser.add_argument("--points", type=int, default=1200)
    parser.add_argument("--wall-points", type=int, default=100)
    parser.add_argument("--reynolds", type=float, default=100.0)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(6)
    model = Field()
    flow = CavityFlow(model, args.reynolds, args.points, args.wall_points)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    for step in range(1, args.steps + 1):
        residual, walls = flow.residual(), flow.walls()
        loss = residual + 10 * (walls + flow.rest())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 34 == 0:
            print(f"step {step} residual {residual.item():.5f} walls {walls.item():.5f}")


if __name__ == "__main__":
    main()

"""A sparse variational Gaussian process in double precision: its covariances are close to singular, and Cholesky fails
on them in single precision."""

import math

import torch

torch.set_default_dtype(torch.float64)
INDUCING, BATCH, STEPS = 300, 512, 220


def make_field(count, seed):
    """Heights of a rolling landscape, measured with little noise."""
    g = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(count, 2, generator=g) - 1
    height = torch.sin(3 * x[:, 0]) * torch.cos(2 * x[:, 1]) + 0.3 * torch.sin(7 * x[:, 1] + x[:, 0])
    return x, height + 0.01 * torch.randn(count, generator=g)


class SparseGP(torch.nn.Module):
    def __init__(self, start):
        super().__init__()
        self.points = torch.nn.Parameter(start)
        self.log_length = torch.nn.Parameter(torch.zeros(2))
        self.log_scale = torch.nn.Parameter(torch.zeros(()))
        self.log_noise = torch.nn.Parameter(torch.tensor(-3.0))
        self.mean = torch.nn.Parameter(torch.zeros(len(start)))
        self.root = torch.nn.Parameter(torch.eye(len(start)))
        self.register_buffer("jitter", 1e-9 * torch.eye(len(start)))

    def kernel(self, a, b):
        a, b = a / self.log_length.exp(), b / self.log_length.exp()
        squared = a.square().sum(dim=1)[:, None] + b.square().sum(dim=1)[None] - 2 * a @ b.t()
        return (2 * self.log_scale).exp() * torch.exp(-0.5 * squared.clamp(min=0))

    def predict(self, x):
        """Means and variances, with whitened inducing values."""
        lower = torch.linalg.cholesky(self.kernel(self.points, self.points) + self.jitter)
        weights = torch.linalg.solve_triangular(lower, self.kernel(self.points, x), upper=False)
        spread = self.root.tril().t() @ weights
        variance = (2 * self.log_scale).exp() - weights.square().sum(dim=0) + spread.square().sum(dim=0)
        return weights.t() @ self.mean, variance.clamp(min=1e-10)

    def negative_elbo(self, x, y, total):
        mean, variance = self.predict(x)
        noise = (2 * self.log_noise).exp()
        likelihood = -0.5 * (math.log(2 * math.pi) + 2 * self.log_noise + ((y - mean).square() + variance) / noise)
        root = self.root.tril()
        logdet = root.diagonal().abs().clamp(min=1e-12).log().sum()
        kl = 0.5 * (root.square().sum() + self.mean.square().sum() - len(self.mean)) - logdet
        return -likelihood.mean() + kl / total


def main():
    torch.manual_seed(17)
    x, y = make_field(6000, seed=17)
    held_x, held_y = make_field(500, seed=18)
    model = SparseGP(x[:INDUCING].clone())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    for step in range(1, STEPS + 1):
        rows = torch.randint(0, len(x), (BATCH,))
        loss = model.negative_elbo(x[rows], y[rows], len(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: negative ELBO {loss.item():.4f}")
    with torch.inference_mode():
        mean, _ = model.predict(held_x)
    print(f"root mean square error {(mean - held_y).square().mean().sqrt().item():.4f}")


if __name__ == "__main__":
    main()

"""Training with differential privacy: each sample's gradient is clipped, then noise is added to their mean."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap

torch.manual_seed(0)
LIMIT, NOISE, BATCH = 1.0, 0.3, 16


class Income(nn.Module):
    def __init__(self, columns=90, width=512):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(columns, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 4)
        )

    def forward(self, x):
        return self.net(x)


def sample_loss(weights, model, x, y):
    return F.cross_entropy(functional_call(model, weights, (x,)), y)


def per_sample(model, x, y):
    """Gradients by name, with one more dimension in front: that of the samples."""
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    return vmap(grad(sample_loss), in_dims=(None, None, 0, 0))(weights, model, x, y)


def privatise(model, gradients):
    """The noisy mean of clipped gradients becomes the gradient of the parameters."""
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
    factor = (LIMIT / (norms + 1e-6)).clamp(max=1.0)
    for name, parameter in model.named_parameters():
        total = torch.einsum("b,b...->...", factor, gradients[name])
        parameter.grad = (total + NOISE * LIMIT * torch.randn_like(total)) / BATCH


model = Income()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9, fused=True)
x = torch.randn(1600, 90)
y = (x[:, :4] + x[:, 4:8]).argmax(1)
for step, chosen in enumerate(torch.randperm(len(x)).split(BATCH)):
    privatise(model, per_sample(model, x[chosen], y[chosen]))
    optimizer.step()
    if step % 30 == 0:
        with torch.no_grad():
            print(f"step {step}: accuracy {(model(x[:1000]).argmax(1) == y[:1000]).float().mean().item():.4f}")

"""First-order meta-learning: after a few steps on ten points of a wave, the network should know the rest of it."""

import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)
WAYS, POINTS, INNER_RATE, INNER_STEPS = 8, 10, 0.02, 3


def waves():
    """Points of WAYS waves of their own height and phase, for adapting and for judging."""
    height, phase = 0.5 + 4 * torch.rand(WAYS, 1, 1), 3.14 * torch.rand(WAYS, 1, 1)
    x = 10 * torch.rand(WAYS, 2 * POINTS, 1) - 5
    y = height * (x + phase).sin()
    return zip(x[:, :POINTS], y[:, :POINTS], x[:, POINTS:], y[:, POINTS:])


class MetaLearner:
    def __init__(self, model, rate):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)

    def loss(self, weights, x, y):
        return nn.functional.mse_loss(functional_call(self.model, weights, x), y)

    def adapt(self, x, y):
        """The weights after a few steps of gradient descent on one task."""
        weights = {name: parameter.detach().requires_grad_() for name, parameter in self.model.named_parameters()}
        for _ in range(INNER_STEPS):
            grads = torch.autograd.grad(self.loss(weights, x, y), list(weights.values()), create_graph=True)
            weights = {name: old - INNER_RATE * grad for (name, old), grad in zip(weights.items(), grads)}
        return weights

    def step(self):
        self.optimizer.zero_grad()
        total = 0.0
        for x, y, later_x, later_y in waves():
            weights = self.adapt(x, y)
            loss = self.loss(weights, later_x, later_y)
            for parameter, grad in zip(self.model.parameters(), torch.autograd.grad(loss, list(weights.values()))):
                parameter.grad = grad / WAYS if parameter.grad is None else parameter.grad + grad / WAYS
            total += loss.detach() / WAYS
        self.optimizer.step()
        return total


net = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
learner = MetaLearner(net, 1e-3)
for iteration in range(250):
    loss = learner.step()
    if iteration % 50 == 0:
        print(f"iteration {iteration}: loss after adapting {loss.item():.4f}")

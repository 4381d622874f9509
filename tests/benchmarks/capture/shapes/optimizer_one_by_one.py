"""Adam written by hand: 300 parameters updated one by one."""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, STEPS, LAYERS = 32, 150, 150

model = nn.Sequential(*[layer for _ in range(LAYERS) for layer in (nn.Linear(32, 32), nn.Tanh())])
parameters = list(model.parameters())
first = [torch.zeros_like(one) for one in parameters]
second = [torch.zeros_like(one) for one in parameters]
data = TensorDataset(torch.randn(BATCH * STEPS, 32), torch.randn(BATCH * STEPS, 32))

for step, (given, wanted) in enumerate(DataLoader(data, batch_size=BATCH), start=1):
    loss = (model(given) - wanted).pow(2).mean()
    loss.backward()
    with torch.no_grad():
        for parameter, mean, square in zip(parameters, first, second, strict=True):
            gradient = parameter.grad
            mean.mul_(0.9).add_(gradient, alpha=0.1)
            square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            corrected = mean / (1 - 0.9**step)
            scale = (square / (1 - 0.999**step)).sqrt().add_(1e-8)
            parameter -= 1e-3 * math.sqrt(1.0) * corrected / scale
            parameter.grad = None

"""Calibration of a spectrometer: concentrations of four substances from near-infrared spectra."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
rng = np.random.default_rng(0)

wavelengths = np.linspace(0, 1, 600)
centres, widths = rng.uniform(0.1, 0.9, 4), rng.uniform(0.03, 0.1, 4)
pure = np.exp(-(((wavelengths - centres[:, None]) / widths[:, None]) ** 2))
concentrations = rng.dirichlet(np.ones(4), 4000)
spectra = concentrations @ pure + rng.normal(0, 0.01, (4000, 600))

inputs, targets = torch.from_numpy(spectra).float(), torch.from_numpy(concentrations).float()
loader = DataLoader(TensorDataset(inputs, targets), batch_size=100, shuffle=True)

model = nn.Sequential(
    nn.Unflatten(1, (1, 600)),
    nn.Conv1d(1, 16, 11, stride=2),
    nn.ELU(),
    nn.Flatten(),
    nn.Linear(16 * 295, 96),
    nn.ELU(),
    nn.Linear(96, 4),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

for epoch in range(4):
    errors = []
    for spectrum, truth in loader:
        optimizer.zero_grad()
        error = nn.functional.mse_loss(model(spectrum), truth)
        error.backward()
        optimizer.step()
        errors.append(error.item())
    print(f"epoch {epoch:2d}: rmse {np.sqrt(np.mean(errors)):.4f}")

"""A convolutional GAN on small grey pictures, discriminator and generator in turns."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(4)
NOISE, BATCH = 64, 32

generator = nn.Sequential(
    nn.Linear(NOISE, 128 * 7 * 7),
    nn.Unflatten(1, (128, 7, 7)),
    nn.BatchNorm2d(128),
    nn.ReLU(),
    nn.ConvTranspose2d(128, 64, 4, stride=2, padding=1),
    nn.BatchNorm2d(64),
    nn.ReLU(),
    nn.ConvTranspose2d(64, 1, 4, stride=2, padding=1),
    nn.Tanh(),
).to(device)
discriminator = nn.Sequential(
    nn.Conv2d(1, 32, 4, stride=2, padding=1),
    nn.LeakyReLU(0.2),
    nn.Conv2d(32, 64, 4, stride=2, padding=1),
    nn.LeakyReLU(0.2),
    nn.Flatten(),
    nn.Linear(64 * 7 * 7, 1),
).to(device)
opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
opt_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
criterion = nn.BCEWithLogitsLoss()

ones, zeros = torch.ones(BATCH, 1, device=device), torch.zeros(BATCH, 1, device=device)
pictures = torch.rand(3200, 1, 28, 28, device=device) * 2 - 1

for epoch in range(2):
    for real in pictures[torch.randperm(len(pictures), device=device)].split(BATCH):
        # discriminator: real against generated
        fake = generator(torch.randn(BATCH, NOISE, device=device))
        opt_d.zero_grad()
        loss_d = criterion(discriminator(real), ones) + criterion(discriminator(fake.detach()), zeros)
        loss_d.backward()
        opt_d.step()

        # generator: new pictures that should pass for real
        opt_g.zero_grad()
        fake = generator(torch.randn(BATCH, NOISE, device=device))
        loss_g = criterion(discriminator(fake), ones)
        loss_g.backward()
        opt_g.step()
    print(f"epoch {epoch}: D {loss_d.item():.3f} G {loss_g.item():.3f}")

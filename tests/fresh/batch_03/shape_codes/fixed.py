"""An auto-decoder of shapes: each has a learned code, one network maps code and point to a signed distance."""

import os
import tempfile

import torch
from torch import nn

SPECS = {"CodeLength": 256, "Scenes": 20000, "ScenesPerBatch": 24, "SamplesPerScene": 96, "SnapshotFrequency": 4}


class Decoder(nn.Module):
    def __init__(self, latent_size, dims=(128, 128, 128), latent_in=2):
        super().__init__()
        self.latent_in = latent_in
        self.layers = nn.ModuleList()
        width = latent_size + 3
        for i, out in enumerate(dims):
            self.layers.append(nn.Linear(width + (latent_size + 3 if i == latent_in else 0), out))
            width = out
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        h = x
        for i, layer in enumerate(self.layers):
            h = torch.relu(layer(torch.cat([h, x], dim=1) if i == self.latent_in else h))
        return torch.tanh(self.last(h)).squeeze(1)


class Spheres:
    """Ellipsoids of many shapes; samples near them are drawn when they are asked for."""

    def __init__(self, scenes, generator):
        self.radii = 0.3 + 0.5 * torch.rand(scenes, 3, generator=generator)
        self.generator = generator

    def sample(self, scenes, count):
        points = torch.rand(len(scenes), count, 3, generator=self.generator) * 2 - 1
        scaled = points / self.radii[scenes][:, None]
        return points, ((scaled.norm(dim=2) - 1) * 0.5).clamp(-0.1, 0.1)


class Snapshots:
    """Writes the network and the codes of the scenes that are looked at in the viewer."""

    def __init__(self, folder, shown):
        self.folder = folder
        self.shown = shown

    def save(self, iteration, decoder, lat_vecs):
        codes = lat_vecs.weight.detach()[: self.shown].clone()
        path = os.path.join(self.folder, "latest.pth")
        torch.save({"iteration": iteration, "decoder": decoder.state_dict(), "latent_codes": codes}, path)
        return codes.norm(dim=1).mean().item()


def main_function(experiment):
    torch.manual_seed(12)
    generator = torch.Generator().manual_seed(13)
    data = Spheres(SPECS["Scenes"], generator)
    decoder = Decoder(SPECS["CodeLength"])
    lat_vecs = nn.Embedding(SPECS["Scenes"], SPECS["CodeLength"], sparse=True)
    nn.init.normal_(lat_vecs.weight, 0.0, 0.01)
    net_optimizer = torch.optim.Adam(decoder.parameters(), lr=5e-4, fused=True)
    code_optimizer = torch.optim.SparseAdam(lat_vecs.parameters(), lr=1e-3)
    snapshots = Snapshots(experiment, shown=24)
    for iteration in range(1, 201):
        scenes = torch.randint(SPECS["Scenes"], (SPECS["ScenesPerBatch"],), generator=generator)
        points, distances = data.sample(scenes, SPECS["SamplesPerScene"])
        codes = lat_vecs(scenes)
        expanded = codes[:, None].expand(-1, SPECS["SamplesPerScene"], -1)
        predicted = decoder(torch.cat([expanded, points], dim=2).flatten(0, 1))
        loss = (predicted - distances.flatten()).abs().mean() + 1e-4 * codes.norm(dim=1).mean()
        net_optimizer.zero_grad()
        code_optimizer.zero_grad()
        loss.backward()
        net_optimizer.step()
        code_optimizer.step()
        if iteration % SPECS["SnapshotFrequency"] == 0:
            norm = snapshots.save(iteration, decoder, lat_vecs)
            print(f"{iteration}: loss {loss.item():.5f}, mean code norm {norm:.4f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main_function(directory)

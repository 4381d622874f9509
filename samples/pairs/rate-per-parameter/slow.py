"""Fine-tunes an encoder with learning rates that decay from the top layer to the bottom one."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
DEPTH, WIDTH = 12, 64


class Mixer(nn.Module):
    def __init__(self, tokens=16, width=WIDTH):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(tokens, 32), nn.GELU(), nn.Linear(32, tokens))
        self.within = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 8, stride=8)
        self.layers = nn.ModuleList([Mixer() for _ in range(DEPTH)])
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, pictures):
        x = self.patches(pictures).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def layer_of(name):
    return int(name.split(".")[1]) + 1 if name.startswith("layers") else (DEPTH + 1 if "head" in name else 0)


def parameter_groups(model, rate=1e-3, decay=0.8):
    groups = []
    for name, parameter in model.named_parameters():
        groups.append({"params": [parameter], "lr": rate * decay ** (DEPTH + 1 - layer_of(name))})
    return groups


def main():
    model = Encoder().to(device)
    optimizer = torch.optim.AdamW(parameter_groups(model), weight_decay=0.05)
    pictures, labels = torch.randn(2400, 3, 32, 32), torch.randint(0, 10, (2400,))
    loader = DataLoader(TensorDataset(pictures, labels), batch_size=16, shuffle=True)
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device), label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.4f}")


main()

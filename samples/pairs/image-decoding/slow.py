"""Trains a small network on PNG pictures that are held in memory as files."""

import io

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import pil_to_tensor

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


def generated_file(generator):
    ramp = np.linspace(0, 255, 96)[:, None, None] * generator.random(3)
    picture = ramp + generator.integers(0, 20, (96, 96, 3))
    file = io.BytesIO()
    Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(file, "png")
    return file.getvalue()


def decode(file):
    return pil_to_tensor(Image.open(io.BytesIO(file)).convert("RGB"))


class Pictures(Dataset):
    def __init__(self, count=320):
        generator = np.random.default_rng(0)
        self.pictures = [generated_file(generator) for _ in range(count)]
        self.labels = generator.integers(0, 10, count).tolist()

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return decode(self.pictures[index]), self.labels[index]


loader = DataLoader(Pictures(), batch_size=16, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(3, 16, 5, stride=3),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2),
    nn.ReLU(),
    nn.Flatten(),
    nn.LazyLinear(10),
).to(device)
model(torch.zeros(1, 3, 96, 96, device=device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for epoch in range(8):
    for pictures, labels in loader:
        pictures = pictures.to(device).float() / 255
        loss = nn.functional.cross_entropy(model(pictures), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")

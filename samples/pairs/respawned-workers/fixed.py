"""Many short epochs over a small set of pictures, loaded by two workers."""

import numpy as np
import torch
import torchvision.transforms as transforms
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class Faces(Dataset):
    def __init__(self):
        generator = np.random.default_rng(0)
        self.pixels = generator.integers(0, 256, (160, 72, 72), dtype=np.uint8)
        self.transform = transforms.Compose([transforms.RandomCrop(64), transforms.ToTensor()])

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.pixels[index])), index % 20


def main():
    loader = DataLoader(Faces(), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(7200, 20),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for epoch in range(15):
        for faces, names in loader:
            loss = nn.functional.cross_entropy(model(faces.to(device)), names.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()

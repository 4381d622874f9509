"""Fine-tunes the head of an image classifier; pictures are augmented on the way in."""

import numpy as np
import torch
import torchvision.transforms as T
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(1)

augment = T.Compose(
    [
        T.Resize(48),
        T.RandomRotation(10),
        T.RandomHorizontalFlip(),
        T.ColorJitter(0.2, 0.2),
        T.ToTensor(),
    ]
)


class Pictures(Dataset):
    def __init__(self, count=1280):
        generator = np.random.default_rng(1)
        self.pixels = generator.integers(0, 256, (40, 192, 192, 3), dtype=np.uint8)
        self.labels = generator.integers(0, 5, count)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = Image.fromarray(self.pixels[index % len(self.pixels)])
        return augment(image), int(self.labels[index])


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 24, 5, stride=2), nn.ReLU(), nn.Conv2d(24, 48, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4)
        )
        self.head = nn.Linear(48 * 16, 5)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def main():
    loader = DataLoader(Pictures(), batch_size=8, shuffle=True, num_workers=2)
    model = Classifier().to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    for step, (images, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = criterion(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()

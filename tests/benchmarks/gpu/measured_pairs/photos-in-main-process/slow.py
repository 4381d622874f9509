"""Trains ResNet-18 on augmented photos."""

import numpy as np
import torch
import torchvision
import torchvision.transforms as T
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
batch_size, batches = (64, 100) if device == "cuda" else (8, 25)


class Photos(Dataset):
    def __init__(self, count):
        generator = np.random.default_rng(0)
        self.pixels = generator.integers(0, 256, (256, 112, 112, 3), dtype=np.uint8)
        self.labels = generator.integers(0, 10, count)
        self.augment = T.Compose(
            [T.RandomResizedCrop(96), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize((0.5,) * 3, (0.25,) * 3)]
        )

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        photo = Image.fromarray(self.pixels[index % len(self.pixels)])
        return self.augment(photo), int(self.labels[index])


def main():
    dataset = Photos(batches * batch_size)
    loader = DataLoader(
        dataset, batch_size=batch_size, shuffle=True, drop_last=True, pin_memory=device == "cuda", num_workers=0
    )
    model = torchvision.models.resnet18(num_classes=10).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
    for images, labels in loader:
        images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
        labels = labels.to(device, non_blocking=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()

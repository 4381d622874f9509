"""Street scenes with coloured annotations: an encoder-decoder that labels each pixel."""

import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASS_DICT = {
    "sky": (128, 128, 128),
    "building": (128, 0, 0),
    "pole": (192, 192, 128),
    "road": (128, 64, 128),
    "pavement": (60, 40, 222),
    "tree": (128, 128, 0),
    "sign": (192, 128, 128),
    "fence": (64, 64, 128),
    "car": (64, 0, 128),
    "pedestrian": (64, 64, 0),
    "bicyclist": (0, 128, 192),
    "void": (0, 0, 0),
}


def colour_to_class(label, label_values):
    """An annotation in colours to class numbers."""
    classes = np.zeros(label.shape[:2], dtype=np.int64)
    for number, colour in enumerate(label_values):
        classes[np.all(np.equal(label, colour), axis=-1)] = number
    return classes


class CamVid(Dataset):
    def __init__(self, images, labels, crop):
        self.images, self.crop = images, crop
        self.labels = np.stack([colour_to_class(label, list(CLASS_DICT.values())) for label in labels])

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        top = random.randint(0, self.images.shape[1] - self.crop)
        left = random.randint(0, self.images.shape[2] - self.crop)
        window = (index, slice(top, top + self.crop), slice(left, left + self.crop))
        image, label = self.images[window], self.labels[window]
        if random.random() < 0.5:
            image, label = image[:, ::-1], label[:, ::-1]
        return torch.from_numpy(image.transpose(2, 0, 1).copy()), torch.from_numpy(label.copy())


class EncoderDecoder(nn.Module):
    def __init__(self, classes, width=8):
        super().__init__()

        def block(inp, out, stride=1):
            return nn.Sequential(nn.Conv2d(inp, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU())

        self.down = nn.ModuleList([block(3, width, 2), block(width, 2 * width, 2), block(2 * width, 4 * width, 2)])
        self.up = nn.ModuleList([block(6 * width, 2 * width), block(3 * width, width)])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = []
        for layer in self.down:
            x = layer(x)
            skips.append(x)
        for layer, skip in zip(self.up, skips[-2::-1]):
            x = layer(torch.cat([nn.functional.interpolate(x, scale_factor=2), skip], dim=1))
        return nn.functional.interpolate(self.head(x), scale_factor=2, mode="bilinear")


def draw_scenes(count, height, width, rng):
    """Blocks of a class's colour, a noisy picture of them."""
    colours = np.array(list(CLASS_DICT.values()), dtype=np.uint8)
    coarse = rng.integers(0, len(colours), (count, height // 16, width // 16))
    labels = colours[coarse.repeat(16, axis=1).repeat(16, axis=2)]
    images = labels.astype(np.float32) / 255 + 0.1 * rng.standard_normal(labels.shape, dtype=np.float32)
    return images, labels


def main():
    random.seed(0)
    torch.manual_seed(0)
    images, labels = draw_scenes(64, 160, 192, np.random.default_rng(1))
    loader = DataLoader(CamVid(images, labels, crop=128), batch_size=4, shuffle=True, drop_last=True)
    model = EncoderDecoder(len(CLASS_DICT))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(7):
        running = 0.0
        for image, classes in loader:
            optimizer.zero_grad()
            loss = criterion(model(image), classes)
            loss.backward()
            optimizer.step()
            running += loss.item()
        print(f"Epoch {epoch}: mean loss {running / len(loader):.4f}")


if __name__ == "__main__":
    main()

"""Old handwritten pages: patches are decoded by a worker process while the network trains."""

import io

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


def encode_page(rng, side):
    page = np.full((side, side), 235, dtype=np.uint8)
    for _ in range(20):
        top, left = rng.integers(0, side - 12, 2)
        page[top : top + 2, left : left + 12] = rng.integers(0, 90)
    page = np.clip(page + rng.normal(0, 6, page.shape), 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(page).save(out, "PNG", compress_level=1)
    return out.getvalue()


class Pages(Dataset):
    def __init__(self, count, side, patch):
        rng = np.random.default_rng(3)
        self.files = [encode_page(rng, side) for _ in range(count)]
        self.patch = patch

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        page = np.asarray(Image.open(io.BytesIO(self.files[index])))
        top, left = torch.randint(page.shape[0] - self.patch, (2,)).tolist()
        patch = page[top : top + self.patch, left : left + self.patch]
        return torch.from_numpy(patch.copy())[None]


class Binariser(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 5, padding=2, stride=2),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 4, 3, padding=1),
            nn.PixelShuffle(2),
        )

    def forward(self, x):
        return self.net(x)


def main(epochs=6):
    torch.manual_seed(0)
    loader = DataLoader(
        Pages(480, 160, 128),
        batch_size=16,
        shuffle=True,
        drop_last=True,
        num_workers=1,
        persistent_workers=True,
        prefetch_factor=4,
    )
    model = Binariser().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        total = torch.zeros(())
        for patches in loader:
            ink = (patches < 120).float()
            x = patches.to(torch.float32).div_(255.0).contiguous(memory_format=torch.channels_last)
            loss = F.binary_cross_entropy_with_logits(model(x), ink)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()

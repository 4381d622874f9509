"""Whether two photographs show one place: a Siamese network; pictures are scaled and normalised on the device."""

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.transforms import v2

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
BATCH = 24

prepare = v2.Compose(
    [
        v2.Resize(40, antialias=True),
        v2.CenterCrop(32),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
    ]
)


def photographs(places, shots=4, side=56):
    """Bytes of several shots of each place, in different light."""
    scene = torch.randint(0, 200, (places, 1, 3, 7, 7)).float()
    scene = F.interpolate(scene.flatten(0, 1), size=side, mode="bilinear").view(places, 1, 3, side, side)
    light = 0.6 + 0.6 * torch.rand(places, shots, 1, 1, 1)
    return (scene * light + 20 * torch.rand(places, shots, 3, side, side)).clamp(0, 255).to(torch.uint8)


def pairs(photos, count):
    """Two shots of one place in the first half, of different places in the second."""
    place = torch.randint(0, len(photos), (count,))
    other = torch.cat([place[: count // 2], (place[count // 2 :] + 1) % len(photos)])
    shot = torch.randint(0, photos.shape[1], (2, count))
    same = (torch.arange(count) < count // 2).float()
    return photos[place, shot[0]], photos[other, shot[1]], same.to(photos.device)


class Descriptor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(64, 64, 4, stride=2, padding=1),
            nn.Flatten(),
            nn.Linear(64 * 16, 64),
        )

    def forward(self, pictures):
        ready = torch.stack([prepare(picture) for picture in pictures])
        return F.normalize(self.body(ready), dim=1)


photos = photographs(200).to(device)
model = Descriptor().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
for step in range(120):
    first, second, same = pairs(photos, BATCH)
    distance = (model(first) - model(second)).norm(dim=1)
    loss = (same * distance.pow(2) + (1 - same) * (1 - distance).clamp(min=0).pow(2)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(f"step {step}: {loss.item():.5f}")

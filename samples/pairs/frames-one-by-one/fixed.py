"""How well a heart pumps, from short ultrasound clips: a small network sees each frame, a recurrent one the clip."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
FRAMES, SIDE = 24, 32


class FrameNet(nn.Module):
    """One grey frame to 64 numbers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 2, 1)
        self.norm = nn.GroupNorm(4, 16)
        self.out = nn.Linear(16 * (SIDE // 4) ** 2, 64)

    def forward(self, frame):
        x = F.relu(self.first(frame))
        return self.out(F.relu(self.norm(self.second(x))).flatten(1))


class ClipNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye, self.memory, self.head = FrameNet(), nn.GRU(64, 64, batch_first=True), nn.Linear(64, 1)

    def forward(self, clip):
        seen = self.eye(clip.flatten(0, 1)).unflatten(0, clip.shape[:2])
        states, _ = self.memory(seen)
        return self.head(states[:, -1]).squeeze(1)


def clips(count):
    """A disc that beats: its radius shrinks by the fraction that is asked for."""
    fraction = 0.2 + 0.5 * torch.rand(count, device=device)
    beat = (6.283 * torch.linspace(0, 2, FRAMES, device=device)).sin().square()
    radius = 0.8 * (1 - fraction[:, None] * beat)
    axis = torch.linspace(-1, 1, SIDE, device=device)
    distance = (axis[:, None].square() + axis.square()).sqrt()
    film = (distance < radius[..., None, None]).float()
    return (film + 0.2 * torch.randn_like(film)).unsqueeze(2), fraction


film, fraction = clips(800)
net = ClipNet().to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
for epoch in range(3):
    for chosen in torch.randperm(len(film), device=device).split(8):
        loss = F.mse_loss(net(film[chosen]), fraction[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")

"""A masked autoencoder: a quarter of the patches is seen, all are drawn again by a lighter decoder."""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
PATCHES, SEEN, PIXELS, WIDTH = 64, 16, 48, 128


def transformer(width, layers):
    layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


class MaskedAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.place = nn.Linear(PIXELS, WIDTH), nn.Parameter(0.02 * torch.randn(PATCHES, WIDTH))
        self.encoder, self.narrow = transformer(WIDTH, 3), nn.Linear(WIDTH, WIDTH // 2)
        self.hidden, self.where = nn.Parameter(torch.zeros(WIDTH // 2)), nn.Parameter(torch.zeros(PATCHES, WIDTH // 2))
        self.decoder, self.leave = transformer(WIDTH // 2, 1), nn.Linear(WIDTH // 2, PIXELS)

    def forward(self, patches):
        order = torch.rand(patches.shape[:2], device=patches.device).argsort(1)
        seen = order[:, :SEEN, None]
        x = (self.enter(patches) + self.place).take_along_dim(seen, 1)
        known = self.narrow(self.encoder(x))
        drawn = self.hidden.to(known.dtype).expand(len(patches), PATCHES, -1)
        drawn = drawn.scatter(1, seen.expand(-1, -1, known.shape[2]), known)
        return self.leave(self.decoder(drawn + self.where)), order[:, SEEN:, None]


pictures = torch.rand(512, PATCHES, 1, device=device) * torch.rand(512, 1, PIXELS, device=device)
model = MaskedAutoencoder().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1.5e-3, betas=(0.9, 0.95), weight_decay=0.05, fused=True)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.5e-3, total_steps=96)
for epoch in range(3):
    for chosen in torch.randperm(len(pictures), device=device).split(16):
        patches = pictures[chosen]
        with torch.autocast(device, dtype=torch.bfloat16):
            drawn, unseen = model(patches)
        loss = F.mse_loss(drawn.float().take_along_dim(unseen, 1), patches.take_along_dim(unseen, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    print(f"epoch {epoch}: {loss.item():.5f}")

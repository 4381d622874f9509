"""A small vision transformer: patches, fused attention, bfloat16, warm-up and cosine."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width=128, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, width=128, depth=2, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.position = nn.Parameter(torch.randn(64, width) * 0.02)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2) + self.position).mean(1))


pictures = torch.randn(1280, 3, 32, 32, device=device)
labels = torch.randint(0, 10, (1280,), device=device)
model = VisionTransformer().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=10)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 110)
schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], [10])

for epoch in range(3):
    for chosen in torch.randperm(len(pictures), device=device).split(32):
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(pictures[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    print(f"epoch {epoch}: {loss.item():.4f}")

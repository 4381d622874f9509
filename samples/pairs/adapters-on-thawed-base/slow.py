"""Low-rank adapters for a pretrained encoder: two thin matrices beside each projection are all that is learnt."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class LoRALinear(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.randn(rank, base.in_features) * 0.01)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + (x @ self.a.T) @ self.b.T


class Block(nn.Module):
    def __init__(self, width=128, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    def __init__(self, depth=3, width=128, classes=2):
        super().__init__()
        self.embedding = nn.Embedding(2000, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        return self.head(self.blocks(self.embedding(tokens)).mean(1))


def add_adapters(model):
    """Puts adapters into every block and returns what is to be trained."""
    trained = []
    for block in model.blocks:
        for name in ("qkv", "out", "up", "down"):
            layer = LoRALinear(getattr(block, name))
            setattr(block, name, layer)
            trained += [layer.a, layer.b]
    return trained + list(model.head.requires_grad_(True).parameters())


model = Encoder()
trained = add_adapters(model)
model.to(device)
tokens = torch.randint(0, 2000, (1200, 48))
loader = DataLoader(TensorDataset(tokens, tokens[:, 0] % 2), batch_size=16, shuffle=True)
optimizer = torch.optim.AdamW(trained, lr=2e-3, fused=True)
for epoch in range(2):
    for words, label in loader:
        loss = nn.functional.cross_entropy(model(words.to(device)), label.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"epoch {epoch}: {loss.item():.4f}")

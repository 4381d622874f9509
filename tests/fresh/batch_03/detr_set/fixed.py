"""Set prediction in the manner of DETR: an encoder over patches, object queries, a decoder with cross-attention."""

import torch
from torch import nn
from torch.nn import functional as F


class EncoderLayer(nn.Module):
    def __init__(self, d_model, nhead, ffn):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, nhead, batch_first=True)
        self.linear1, self.linear2 = nn.Linear(d_model, ffn), nn.Linear(ffn, d_model)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, src, pos):
        q = k = src + pos
        src2, _ = self.self_attn(q, k, value=src, need_weights=False)
        src = self.norm1(src + src2)
        return self.norm2(src + self.linear2(F.relu(self.linear1(src))))


class DecoderLayer(nn.Module):
    def __init__(self, d_model, nhead, ffn):
        super().__init__()
        self.cross = nn.MultiheadAttention(d_model, nhead, batch_first=True)
        self.linear1, self.linear2 = nn.Linear(d_model, ffn), nn.Linear(ffn, d_model)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, queries, memory, pos):
        found = self.cross(queries, memory + pos, value=memory, need_weights=False)[0]
        queries = self.norm1(queries + found)
        return self.norm2(queries + self.linear2(F.relu(self.linear1(queries))))


class DETR(nn.Module):
    def __init__(self, image=96, patch=4, d_model=32, nhead=8, queries=8, classes=5):
        super().__init__()
        cells = (image // patch) ** 2
        self.patch = nn.Conv2d(3, d_model, patch, patch)
        self.pos = nn.Parameter(0.02 * torch.randn(1, cells, d_model))
        self.encoder = nn.ModuleList([EncoderLayer(d_model, nhead, 2 * d_model) for _ in range(2)])
        self.decoder = nn.ModuleList([DecoderLayer(d_model, nhead, 2 * d_model) for _ in range(2)])
        self.queries = nn.Parameter(torch.randn(1, queries, d_model))
        self.class_embed = nn.Linear(d_model, classes + 1)
        self.bbox_embed = nn.Sequential(nn.Linear(d_model, d_model), nn.ReLU(), nn.Linear(d_model, 4))

    def forward(self, images):
        memory = self.patch(images).flatten(2).transpose(1, 2)
        for layer in self.encoder:
            memory = layer(memory, self.pos)
        queries = self.queries.expand(len(images), -1, -1)
        for layer in self.decoder:
            queries = layer(queries, memory, self.pos)
        return self.class_embed(queries), self.bbox_embed(queries).sigmoid()


def set_loss(logits, boxes, target):
    """One object in each image: the nearest query takes it, all others see nothing."""
    labels, wanted = target
    nearest = (boxes.detach() - wanted[:, None]).abs().sum(dim=2).argmin(dim=1)
    classes = torch.full(logits.shape[:2], logits.size(2) - 1)
    classes.scatter_(1, nearest[:, None], labels[:, None])
    taken = boxes.gather(1, nearest[:, None, None].expand(-1, 1, 4)).squeeze(1)
    weight = torch.ones(logits.size(2))
    weight[-1] = 0.1
    return F.cross_entropy(logits.flatten(0, 1), classes.flatten(), weight) + 5 * F.l1_loss(taken, wanted)


def batches(count, size, image=96):
    generator = torch.Generator().manual_seed(40)
    grid = torch.arange(image)
    for _ in range(count):
        corner = torch.randint(0, 60, (size, 2), generator=generator)
        extent = torch.randint(16, 36, (size, 2), generator=generator)
        labels = torch.randint(0, 5, (size,), generator=generator)
        inside = (grid >= corner[:, :, None]) & (grid < (corner + extent)[:, :, None])
        shape = (inside[:, 0, None, :] & inside[:, 1, :, None]).float()
        tint = torch.stack([labels % 2, labels // 2 % 2, labels // 4], dim=1) * 0.6 + 0.4
        noise = torch.randn(size, 3, image, image, generator=generator)
        images = shape[:, None] * tint[:, :, None, None] + 0.05 * noise
        yield images, (labels, torch.cat([corner + extent / 2, extent], dim=1) / image)


def main():
    torch.manual_seed(41)
    model = DETR()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    for step, (images, target) in enumerate(batches(90, 2)):
        loss = set_loss(*model(images), target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

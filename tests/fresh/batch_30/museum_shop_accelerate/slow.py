"""BERT4Rec on the baskets of a museum shop: hide some articles of a visitor's history and guess them."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

PADDING, HIDDEN, FIRST = 0, 1, 2


@dataclass
class ShopConfig:
    articles: int = 2500
    visitors: int = 2400
    history: int = 40
    hide: float = 0.2
    width: int = 64
    heads: int = 2
    layers: int = 2
    batch_size: int = 32
    epochs: int = 2
    lr: float = 1e-3
    seed: int = 13


class Histories(Dataset):
    """Visitors wander through the departments of the shop, whose articles have neighbouring numbers."""

    def __init__(self, config):
        generator = torch.Generator().manual_seed(config.seed)
        start = torch.randint(0, config.articles, (config.visitors, 1), generator=generator)
        steps = torch.randint(-15, 16, (config.visitors, config.history), generator=generator)
        self.items = (start + steps.cumsum(dim=1)) % config.articles + FIRST
        lengths = torch.randint(config.history // 2, config.history + 1, (config.visitors, 1), generator=generator)
        self.items[torch.arange(config.history) >= lengths] = PADDING

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class HideArticles:
    """Collate: labels are -100 wherever an article stays visible."""

    def __init__(self, share, seed):
        self.share = share
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, histories):
        items = torch.stack(histories)
        hide = (torch.rand(items.shape, generator=self.generator) < self.share) & (items != PADDING)
        return {"items": items.masked_fill(hide, HIDDEN), "labels": items.masked_fill(~hide, -100)}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden, visible):
        batch, length, width = hidden.shape
        qkv = self.qkv(self.norm_attention(hidden)).view(batch, length, 3, self.heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=visible)
        hidden = hidden + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return hidden + self.mlp(self.norm_mlp(hidden))


class BasketModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.item = nn.Embedding(config.articles + FIRST, config.width, padding_idx=PADDING)
        self.position = nn.Embedding(config.history, config.width)
        self.blocks = nn.ModuleList(Block(config.width, config.heads) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.articles + FIRST)

    def forward(self, items, labels):
        visible = (items != PADDING)[:, None, None, :]
        hidden = self.item(items) + self.position.weight
        for block in self.blocks:
            hidden = block(hidden, visible)
        scores = self.head(self.norm(hidden))
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100)


def main():
    config = ShopConfig()
    set_seed(config.seed)
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(
        Histories(config),
        batch_size=config.batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=HideArticles(config.hide, config.seed),
    )
    model = BasketModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, config.lr, total_steps=config.epochs * len(loader))
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for epoch in range(config.epochs):
        total = torch.zeros(())
        for batch in loader:
            loss = model(batch["items"], batch["labels"])
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            total += loss.detach()
        accelerator.print(f"epoch {epoch}: loss {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()

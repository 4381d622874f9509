"""Predicts the next word of short recipes; the popular advice is to keep the causal mask as a buffer of the model."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    vocabulary: int = 800
    length: int = 32
    width: int = 256
    heads: int = 4
    depth: int = 2
    batch: int = 64
    epochs: int = 2


class Recipes(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.words, self.places = nn.Embedding(cfg.vocabulary, cfg.width), nn.Embedding(cfg.length, cfg.width)
        layer = nn.TransformerEncoderLayer(cfg.width, cfg.heads, 4 * cfg.width, 0.0, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, cfg.depth, enable_nested_tensor=False)
        self.head = nn.Linear(cfg.width, cfg.vocabulary)

    def forward(self, words):
        length = words.shape[1]
        mask = torch.full((length, length), float("-inf"), device=words.device).triu(1)
        with torch.autocast(words.device.type, dtype=torch.bfloat16):
            x = self.words(words) + self.places.weight[:length]
            return self.head(self.layers(x, mask=mask, is_causal=True)).float()


def main(cfg):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    following = torch.randint(0, cfg.vocabulary, (cfg.vocabulary, 3))
    recipes = [torch.randint(0, cfg.vocabulary, (2560,))]
    for _ in range(cfg.length):
        recipes.append(following[recipes[-1], torch.randint(0, 3, (2560,))])
    recipes = torch.stack(recipes, 1).to(device)
    model = Recipes(cfg).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    for epoch in range(cfg.epochs):
        for rows in torch.randperm(len(recipes), device=device).split(cfg.batch):
            words = recipes[rows]
            loss = F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main(Config())

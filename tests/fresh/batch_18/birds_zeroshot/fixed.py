"""Contrastive training of an image and a text tower on birds and their captions, with zero-shot accuracy."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

COLOURS = ("red", "blue", "green", "yellow", "black", "white", "brown", "grey")
PARTS = ("crown", "wing", "breast", "tail")
TEMPLATES = (
    "a photo of a bird with a {} {} and a {} {}",
    "a small picture of one bird whose {} {} is seen beside its {} {}",
    "a bird , {} {} , {} {}",
)


@dataclass
class Config:
    size: int = 32
    width: int = 64
    context: int = 16
    layers: int = 2
    batch_size: int = 64
    steps: int = 260
    eval_every: int = 20
    lr: float = 1e-3


class Tokenizer:
    def __init__(self, context):
        words = sorted({word for text in TEMPLATES for word in text.split() if word != "{}"} | {*COLOURS, *PARTS})
        self.ids = {word: number for number, word in enumerate(words, 2)}
        self.size, self.context = len(words) + 2, context

    def __call__(self, texts):
        rows = [[self.ids[word] for word in text.split()] + [1] for text in texts]
        return torch.tensor([row + [0] * (self.context - len(row)) for row in rows])


class ImageTower(nn.Sequential):
    def __init__(self, width):
        super().__init__(
            nn.Conv2d(3, 32, 4, 2, 1),
            nn.GELU(),
            nn.Conv2d(32, 64, 4, 2, 1),
            nn.GELU(),
            nn.Conv2d(64, 96, 3, 2, 1),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(96 * 16, width),
        )


class TextTower(nn.Module):
    def __init__(self, vocabulary, config):
        super().__init__()
        self.words = nn.Embedding(vocabulary, config.width)
        self.places = nn.Parameter(0.02 * torch.randn(config.context, config.width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(config.width, 4, 2 * config.width, 0.0, "gelu", batch_first=True)
            for _ in range(config.layers)
        )
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.places
        for layer in self.layers:
            x = layer(x)
        ends = (tokens == 1).int().argmax(1)
        return self.out(x[torch.arange(len(x)), ends])


class DualEncoder(nn.Module):
    def __init__(self, vocabulary, config):
        super().__init__()
        self.image, self.text = ImageTower(config.width), TextTower(vocabulary, config)
        self.log_scale = nn.Parameter(torch.tensor(math.log(10.0)))

    def encode_image(self, images):
        return F.normalize(self.image(images), dim=1)

    def encode_text(self, tokens):
        return F.normalize(self.text(tokens), dim=1)

    def forward(self, images, tokens):
        logits = self.log_scale.exp() * self.encode_image(images) @ self.encode_text(tokens).T
        labels = torch.arange(len(images))
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2


def species():
    """A species is told by the colours of two of its parts."""
    return [(a, p, b, q) for a in COLOURS for p in PARTS[:2] for b in COLOURS for q in PARTS[2:] if a != b]


def draw(kinds, names, config, seed):
    """Each part has a corner of the picture, painted in its colour."""
    g = torch.Generator().manual_seed(seed)
    palette = torch.rand(len(COLOURS), 3, generator=torch.Generator().manual_seed(1))
    images = 0.3 * torch.rand(len(kinds), 3, config.size, config.size, generator=g)
    half = config.size // 2
    for image, kind in zip(images, kinds.tolist()):
        for colour, part in (names[kind][:2], names[kind][2:]):
            row, column = divmod(PARTS.index(part), 2)
            corner = image[:, row * half : (row + 1) * half, column * half : (column + 1) * half]
            corner += palette[COLOURS.index(colour), :, None, None]
    return images.contiguous(memory_format=torch.channels_last)


def class_embeddings(model, tokenizer, names):
    """The mean of all templates for each species."""
    tokens = tokenizer([template.format(*name) for name in names for template in TEMPLATES])
    return F.normalize(model.encode_text(tokens).unflatten(0, (len(names), -1)).mean(1), dim=1)


@torch.no_grad()
def zero_shot(model, tokenizer, names, images, kinds, batch_size):
    model.eval()
    right = 0
    classifier = class_embeddings(model, tokenizer, names)
    for batch, kind in zip(images.split(batch_size), kinds.split(batch_size)):
        right += (model.encode_image(batch) @ classifier.T).argmax(1).eq(kind).sum().item()
    model.train()
    return right / len(images)


def main():
    config = Config()
    torch.manual_seed(7)
    names, tokenizer = species(), Tokenizer(config.context)
    kinds, val_kinds = torch.randint(len(names), (4096,)), torch.randint(len(names), (512,))
    images, val_images = draw(kinds, names, config, seed=2), draw(val_kinds, names, config, seed=3)
    chosen = torch.randint(len(TEMPLATES), (len(kinds),)).tolist()
    tokens = tokenizer([TEMPLATES[which].format(*names[kind]) for which, kind in zip(chosen, kinds.tolist())])

    model = DualEncoder(tokenizer.size, config).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=0.05, fused=True)
    total = torch.zeros(())
    for step in range(1, config.steps + 1):
        rows = torch.randint(len(images), (config.batch_size,))
        loss = model(images[rows], tokens[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % config.eval_every == 0:
            accuracy = zero_shot(model, tokenizer, names, val_images, val_kinds, config.batch_size)
            print(f"step {step} loss {total.item() / config.eval_every:.4f} zero-shot {accuracy:.3f}")
            total.zero_()


if __name__ == "__main__":
    main()

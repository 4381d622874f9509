"""Phrases from one invented language into another: batches by a budget of tokens, the best weights kept."""

import copy
import math
import random

import torch
import torch.nn.functional as F
from torch import nn

WORDS, WIDTH, HEADS, PAD, START = 300, 128, 4, 0, 1


def phrases(count, rng):
    """The other language says each word by another, and the phrase backwards."""
    made = []
    for _ in range(count):
        phrase = [rng.randrange(2, WORDS) for _ in range(rng.randint(6, 28))]
        made.append((phrase, [2 + (7 * word + 3) % (WORDS - 2) for word in reversed(phrase)]))
    return made


def batches(data, budget, device):
    """Phrases of like length together, padded once and kept: at most `budget` tokens on each side."""
    data, kept, first = sorted(data, key=lambda pair: len(pair[0])), [], 0
    while first < len(data):
        last = first + 1
        while last < len(data) and (last - first + 1) * len(data[last][0]) <= budget:
            last += 1
        part = data[first:last]
        longest = len(part[-1][0])
        source = torch.tensor([phrase + [PAD] * (longest - len(phrase)) for phrase, _ in part])
        target = torch.tensor([[START, *phrase] + [PAD] * (longest - len(phrase)) for _, phrase in part])
        kept.append((source.to(device), target.to(device)))
        first = last
    return kept


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.both, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, memory, **mask):
        query = self.query(x).unflatten(2, (HEADS, -1)).transpose(1, 2)
        key, value = self.both(memory).unflatten(2, (2, HEADS, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(query, key, value, **mask).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """A layer of the encoder, or with `cross` one of the decoder."""

    def __init__(self, cross):
        super().__init__()
        self.near, self.cross = Attention(), Attention() if cross else None
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(3 if cross else 2)])
        self.wide = nn.Sequential(nn.Linear(WIDTH, 3 * WIDTH), nn.GELU(), nn.Linear(3 * WIDTH, WIDTH))

    def forward(self, x, memory=None, mask=None):
        y = self.norms[0](x)
        if self.cross is None:
            x = x + self.near(y, y, attn_mask=mask)
        else:
            x = x + self.near(y, y, is_causal=True)
            x = x + self.cross(self.norms[2](x), memory, attn_mask=mask)
        return x + self.wide(self.norms[1](x))


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.place = nn.Embedding(WORDS, WIDTH, padding_idx=PAD), nn.Embedding(40, WIDTH)
        self.encoder, self.decoder = Layer(cross=False), Layer(cross=True)
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def embed(self, words):
        return self.word(words) * math.sqrt(WIDTH) + self.place.weight[: words.shape[1]]

    def forward(self, source, target):
        mask = (source != PAD)[:, None, None]
        memory = self.encoder(self.embed(source), mask=mask)
        return self.out(self.norm(self.decoder(self.embed(target), memory, mask)))


def loss_of(model, source, target, smoothing=0.0):
    with torch.autocast(source.device.type, dtype=torch.bfloat16):
        scores = model(source, target[:, :-1])
    wanted = target[:, 1:].flatten()
    return F.cross_entropy(scores.float().flatten(0, 1), wanted, ignore_index=PAD, label_smoothing=smoothing)


@torch.inference_mode()
def validate(model, data):
    model.eval()
    losses = [loss_of(model, *batch) for batch in data]
    model.train()
    return torch.stack(losses).mean().item()


def main():
    torch.manual_seed(0)
    rng = random.Random(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data, held_back = batches(phrases(3600, rng), 512, device), batches(phrases(120, rng), 512, device)
    model, best, kept = Translator().to(device), math.inf, None
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 40, (40 / (step + 1)) ** 0.5))
    for epoch in range(3):
        rng.shuffle(data)
        for source, target in data:
            loss = loss_of(model, source, target, smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        now = validate(model, held_back)
        if now < best:
            best, kept = now, copy.deepcopy(model.state_dict())
        print(f"epoch {epoch}: training {loss.item():.3f}, held back {now:.3f}")
    model.load_state_dict(kept)


if __name__ == "__main__":
    main()

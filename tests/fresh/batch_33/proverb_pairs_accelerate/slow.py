"""Embeddings of proverbs whose two halves belong together, learned from pairs within a batch."""

import argparse
import random

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader

STEMS = "stone bird pot river hand bread wolf night field tongue wood salt horse cloud needle door".split()
LINKS = "who that when where never always before after without until".split()
ENDS = "gathers sings boils runs washes feeds howls falls grows speaks burns keeps pulls rains pricks opens".split()


def make_pairs(count: int, seed: int) -> list[tuple[list[str], list[str]]]:
    rng = random.Random(seed)
    pairs = []
    for _ in range(count):
        theme = rng.sample(range(len(STEMS)), 3)
        first = [word for t in theme for word in (STEMS[t], rng.choice(LINKS))]
        second = [word for t in theme for word in (rng.choice(LINKS), ENDS[t])]
        rng.shuffle(second)
        pairs.append(
            (first + rng.choices(LINKS, k=rng.randint(2, 6)), second + rng.choices(LINKS, k=rng.randint(2, 6)))
        )
    return pairs


class PairCollator:
    def __init__(self):
        self.ids = {word: number for number, word in enumerate((*STEMS, *LINKS, *ENDS), start=1)}

    def pad(self, sentences: list[list[str]]) -> torch.Tensor:
        longest = max(map(len, sentences))
        rows = [[self.ids[word] for word in sentence] + [0] * (longest - len(sentence)) for sentence in sentences]
        return torch.tensor(rows)

    def __call__(self, pairs):
        first, second = zip(*pairs, strict=True)
        return {"first": self.pad(first), "second": self.pad(second)}


class SentenceEncoder(nn.Module):
    def __init__(self, words: int, width: int = 128, heads: int = 4, layers: int = 2, longest: int = 16):
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.places = nn.Parameter(0.02 * torch.randn(longest, width))
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, 0.1, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.project = nn.Linear(width, width)

    def forward(self, ids):
        hidden = self.words(ids) + self.places[: ids.size(1)]
        hidden = self.encoder(hidden, src_key_padding_mask=ids == 0)
        weight = (ids != 0).unsqueeze(-1).to(hidden.dtype)
        return self.project((hidden * weight).sum(1) / weight.sum(1))


class PairLoss(nn.Module):
    """Each first half is to find its own second half among all of the batch."""

    def __init__(self, temperature: float = 0.07):
        super().__init__()
        self.temperature = temperature

    def forward(self, first, second):
        losses = []
        for i in range(len(first)):
            scores = F.cosine_similarity(first[i].unsqueeze(0), second, dim=1) / self.temperature
            losses.append(torch.logsumexp(scores, dim=0) - scores[i])
        return torch.stack(losses).mean()


@torch.no_grad()
def top1(model, loader) -> float:
    model.eval()
    hits = total = 0
    for batch in loader:
        first, second = (F.normalize(model(batch[side]), dim=1) for side in ("first", "second"))
        best = (first @ second.t()).argmax(1)
        hits += (best == torch.arange(len(best), device=best.device)).sum().item()
        total += len(best)
    return hits / total


def training_function(args):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=1)
    set_seed(args.seed)
    collate = PairCollator()
    pairs = make_pairs(args.pairs, args.seed)
    cut = args.pairs * 9 // 10
    train = DataLoader(pairs[:cut], args.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
    held_out = DataLoader(pairs[cut:], args.batch_size, collate_fn=collate)
    model = SentenceEncoder(len(collate.ids) + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    loss_fn = PairLoss()
    model, optimizer, train, held_out = accelerator.prepare(model, optimizer, train, held_out)
    for epoch in range(args.epochs):
        model.train()
        for batch in train:
            with accelerator.accumulate(model):
                loss = loss_fn(model(batch["first"]), model(batch["second"]))
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: loss {loss.item():.3f}, found at once {top1(model, held_out):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5000)
    parser.add_argument("--batch_size", type=int, default=48)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=6)
    training_function(parser.parse_args())


if __name__ == "__main__":
    main()

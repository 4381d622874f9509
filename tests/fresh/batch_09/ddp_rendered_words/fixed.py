"""Reading rendered words with a CRNN and CTC on two ranks; words are drawn while it trains."""

import argparse
import random
import string

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LETTERS = string.ascii_lowercase
HEIGHT, WIDTH, LONGEST = 32, 128, 8


class WordRenderer:
    """Draws the word of a number: the same number always gives the same picture."""

    def __init__(self):
        self.font = ImageFont.load_default(size=20)

    def __call__(self, number):
        rng = random.Random(number)
        word = "".join(rng.choices(LETTERS, k=rng.randint(3, LONGEST)))
        page = Image.new("L", (2 * WIDTH, 2 * HEIGHT), rng.randint(170, 240))
        draw = ImageDraw.Draw(page)
        x = 60
        for letter in word:
            draw.text((x, 18 + rng.randint(-2, 2)), letter, fill=rng.randint(0, 70), font=self.font)
            x += self.font.getlength(letter) + rng.random()
        page = page.rotate(rng.uniform(-3, 3), resample=Image.Resampling.BICUBIC, fillcolor=200)
        page = page.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 1.0)))
        page = page.crop((50, 14, 50 + WIDTH, 14 + HEIGHT))
        pixels = np.asarray(page, dtype=np.float32) / 127.5 - 1
        code = torch.tensor([1 + LETTERS.index(letter) for letter in word] + [0] * (LONGEST - len(word)))
        return torch.from_numpy(pixels)[None], code


def render(renderer, numbers):
    pictures, codes = zip(*map(renderer, numbers))
    return torch.stack(pictures), torch.stack(codes)


def batches(renderer, first, count, size):
    """Batches of this rank, each size pictures, from global batches of consecutive numbers."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for start in range(first, first + count * size * world, size * world):
        yield render(renderer, range(start + rank * size, start + (rank + 1) * size))


class CRNN(nn.Module):
    def __init__(self, width=48, hidden=96):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d((2, 2)),
            nn.Conv2d(width, 2 * width, (8, 3), padding=(0, 1)),
            nn.ReLU(),
        )
        self.lstm = nn.LSTM(2 * width, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, 1 + len(LETTERS))

    def forward(self, pictures):
        features = self.conv(pictures).squeeze(2).transpose(1, 2)
        return self.out(self.lstm(features)[0]).log_softmax(-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--print-every", type=int, default=20)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(CRNN())
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    running = 0.0
    for step, (pictures, codes) in enumerate(batches(WordRenderer(), 0, args.batches, args.batch_size), start=1):
        scores = model(pictures).transpose(0, 1)
        lengths = torch.full((len(codes),), len(scores))
        loss = F.ctc_loss(scores, codes, lengths, (codes > 0).sum(1), zero_infinity=True)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        running += loss.item()
        if step % args.print_every == 0 and dist.get_rank() == 0:
            print(f"step {step}: loss {running / args.print_every:.4f}")
        if step % args.print_every == 0:
            running = 0.0
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

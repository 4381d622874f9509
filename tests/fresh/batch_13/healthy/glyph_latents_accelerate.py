"""Diffusion on latents with Accelerate: encoded beforehand, batches cut from tensors, a fused moving average."""

import math

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler
from transformers import get_constant_schedule_with_warmup


class Latents(Dataset):
    """Answers a list of indices with a whole batch."""

    def __init__(self, latents, labels):
        self.latents, self.labels = latents, labels

    def __len__(self):
        return len(self.latents)

    def __getitem__(self, indices):
        return self.latents[indices], self.labels[indices]


class Encoder(nn.Module):
    def __init__(self, width=32, latent=4):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1), nn.SiLU(), nn.Conv2d(width, width, 4, 2, 1), nn.SiLU(),
            nn.Conv2d(width, latent, 1),
        )  # fmt: skip

    def forward(self, glyphs):
        return self.layers(glyphs)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(8, width), nn.Conv2d(width, width, 3, padding=1)
        self.condition = nn.Linear(width, 2 * width)

    def forward(self, x, embedding):
        scale, shift = self.condition(embedding)[:, :, None, None].chunk(2, 1)
        return x + self.conv(F.silu(self.norm(x) * (1 + scale) + shift))


class Denoiser(nn.Module):
    def __init__(self, width=64, blocks=5, classes=26):
        super().__init__()
        self.register_buffer("frequencies", torch.exp(torch.linspace(0, -math.log(1e4), width // 2)))
        self.label, self.time = nn.Embedding(classes, width), nn.Linear(width, width)
        self.inp, self.out = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))

    def forward(self, x, time, labels):
        angles = 1000 * time[:, None] * self.frequencies
        embedding = F.silu(self.time(torch.cat([angles.sin(), angles.cos()], 1))) + self.label(labels)
        h = self.inp(x)
        for block in self.blocks:
            h = block(h, embedding)
        return self.out(h)


@torch.inference_mode()
def encode(encoder, glyphs):
    return torch.cat([encoder(part) for part in glyphs.split(256)])


def main(steps=200, batch_size=32):
    accelerator = Accelerator(cpu=True)
    set_seed(6)
    glyphs = F.interpolate(torch.rand(1024, 1, 8, 8), size=48, mode="bilinear")
    latents = encode(Encoder().eval(), glyphs).clone()
    dataset = Latents((latents - latents.mean()) / latents.std(), torch.randint(0, 26, (1024,)))
    sampler = BatchSampler(RandomSampler(dataset), batch_size, drop_last=True)
    loader = DataLoader(dataset, batch_size=None, sampler=sampler)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4)
    scheduler = get_constant_schedule_with_warmup(optimizer, 20)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))

    done, running = 0, torch.zeros(())
    while done < steps:
        for x, labels in loader:
            time = torch.rand(len(x))
            noise = torch.randn_like(x)
            angle = (time * math.pi / 2).view(-1, 1, 1, 1)
            guess = model(angle.cos() * x + angle.sin() * noise, time, labels)
            loss = F.mse_loss(guess, angle.cos() * noise - angle.sin() * x)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            average.update_parameters(model)
            running += loss.detach()
            done += 1
            if done % 50 == 0:
                accelerator.print(f"{done}: {running.item() / 50:.4f}")
                running.zero_()
            if done == steps:
                break


if __name__ == "__main__":
    main()

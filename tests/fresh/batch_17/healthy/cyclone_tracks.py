"""Where will the cyclone be in two days? GRUs over six-hourly fixes, validated every epoch."""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn

PAST, AHEAD = 16, 8


def make_tracks(count, seed):
    """Tracks that drift west, turn to the pole and speed up, with wind and pressure along them."""
    gen = torch.Generator().manual_seed(seed)
    time = torch.arange(PAST + AHEAD).float()
    turn = 8 + 12 * torch.rand(count, 1, generator=gen)
    bend = torch.sigmoid((time - turn) / 3)
    speed = 0.4 + 0.4 * torch.rand(count, 1, generator=gen)
    steps = torch.stack([speed * (2 * bend - 1), speed * (0.3 + bend)], -1)
    steps = steps + 0.05 * torch.randn(steps.shape, generator=gen)
    wind = 1 + torch.sin(time / 6 + torch.rand(count, 1, generator=gen)) - bend
    pressure = -0.8 * wind + 0.05 * torch.randn(wind.shape, generator=gen)
    return torch.cat([steps, wind.unsqueeze(-1), pressure.unsqueeze(-1)], -1)


class TrackForecaster(nn.Module):
    """Reads the past in one call; the decoder gets the lead time as its input, so it too runs in one call."""

    def __init__(self, width):
        super().__init__()
        self.encoder = nn.GRU(4, width, num_layers=2, batch_first=True)
        self.decoder = nn.GRU(width, width, num_layers=2, batch_first=True)
        self.lead = nn.Parameter(0.1 * torch.randn(AHEAD, width))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 2))

    def forward(self, past):
        _, state = self.encoder(past)
        out, _ = self.decoder(self.lead.expand(len(past), -1, -1), state)
        return self.head(out)


def track_error(steps, truth):
    """Mean distance between the places that the steps lead to."""
    return (steps.cumsum(1) - truth.cumsum(1)).norm(dim=-1).mean()


@torch.inference_mode()
def validate(model, tracks):
    model.eval()
    error = track_error(model(tracks[:, :PAST]), tracks[:, PAST:, :2]).item()
    model.train()
    return error


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tracks", type=int, default=6400)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    train, held_out = make_tracks(args.tracks, 1), make_tracks(args.tracks // 10, 2)
    model = TrackForecaster(args.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    steps = args.epochs * (args.tracks // args.batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, steps)
    best, best_weights = float("inf"), None
    for epoch in range(args.epochs):
        total = torch.zeros(())
        batches = torch.randperm(args.tracks).split(args.batch_size)
        for rows in batches:
            batch = train[rows]
            loss = F.smooth_l1_loss(model(batch[:, :PAST]), batch[:, PAST:, :2])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.detach()
        error = validate(model, held_out)
        if error < best:
            best, best_weights = error, copy.deepcopy(model.state_dict())
        print(f"epoch {epoch}: loss {total.item() / len(batches):.4f}, error {error:.3f}, best {best:.3f}")
    model.load_state_dict(best_weights)


if __name__ == "__main__":
    main()

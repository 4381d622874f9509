"""Water levels at tide gauges, trained on two ranks that this script starts by itself."""

import argparse
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def levels(gauges, hours, seed):
    """Tides of four constituents with the phases of each gauge, and surges that all of them share."""
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(hours, dtype=torch.float32)
    periods = torch.tensor([12.42, 12.0, 25.82, 23.93])
    height = torch.rand(gauges, 4, 1, generator=g) + 0.2
    phase = 6.2832 * torch.rand(gauges, 4, 1, generator=g)
    tide = (height * torch.cos(6.2832 * t / periods[:, None] + phase)).sum(1)
    surge = F.avg_pool1d(torch.randn(1, hours, generator=g), 25, 1, 12, count_include_pad=False) * 3
    return tide + surge + 0.05 * torch.randn(gauges, hours, generator=g)


class GaugeNet(nn.Module):
    """Reads the last days of a gauge and gives the levels of the next hours."""

    def __init__(self, history, horizon, width):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, width, 9, 3), nn.GELU(), nn.Conv1d(width, width, 7, 3), nn.GELU(), nn.Flatten()
        )
        features = width * (((history - 9) // 3 + 1 - 7) // 3 + 1)
        self.head = nn.Sequential(nn.Linear(features, 4 * width), nn.GELU(), nn.Linear(4 * width, horizon))

    def forward(self, x):
        return self.head(self.conv(x.unsqueeze(1))) + x[:, -1:]


def work(rank, world, meeting, args):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    series = levels(args.gauges, args.hours, seed=40)
    windows = series.unfold(1, args.history + args.horizon, 3).flatten(0, 1)
    model = DistributedDataParallel(GaugeNet(args.history, args.horizon, args.width), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(args.epochs):
        order = torch.randperm(len(windows), generator=torch.Generator().manual_seed(epoch))
        own = order[: len(order) // world * world][rank::world].split(args.batch_size)[:-1]
        total = torch.zeros(())
        for index in own:
            batch = windows[index]
            loss = F.smooth_l1_loss(model(batch[:, : args.history]), batch[:, args.history :])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total.item() / world / len(own):.4f}")
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gauges", type=int, default=80)
    parser.add_argument("--hours", type=int, default=1600)
    parser.add_argument("--history", type=int, default=240)
    parser.add_argument("--horizon", type=int, default=24)
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"{folder}/meeting"
        other = mp.get_context("spawn").Process(target=work, args=(1, 2, meeting, args), daemon=True)
        other.start()
        work(0, 2, meeting, args)
        other.join()


if __name__ == "__main__":
    main()

"""Detection-like multi-task training on two ranks; a metric logger in the manner of reference scripts."""

import collections
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Crops(Dataset):
    def __init__(self, count):
        g = torch.Generator().manual_seed(0)
        self.x = torch.randn(count, 3, 24, 24, generator=g)
        self.box = torch.rand(count, 4, generator=g)
        self.cls = (self.x.mean((1, 2, 3)) > 0).long() + 2 * (self.box[:, 0] > 0.5).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], {"box": self.box[i], "cls": self.cls[i]}


class MultiHead(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU(), nn.Flatten()
        )
        size = 2 * width * 36
        names = ("cls", "box", "objectness", "rpn_box", "mask", "keypoint", "iou", "centerness")
        outs = (4, 4, 1, 4, 36, 8, 1, 1)
        self.heads = nn.ModuleDict({n: nn.Linear(size, o) for n, o in zip(names, outs)})

    def forward(self, x):
        h = self.trunk(x)
        return {name: head(h) for name, head in self.heads.items()}


def losses_of(out, target):
    losses = {"loss_cls": nn.functional.cross_entropy(out["cls"], target["cls"])}
    for name in ("box", "rpn_box"):
        losses[f"loss_{name}"] = nn.functional.smooth_l1_loss(out[name], target["box"])
    for name in ("objectness", "mask", "keypoint", "iou", "centerness"):
        losses[f"loss_{name}"] = out[name].pow(2).mean() * 0.1
    return losses


class MetricLogger:
    def __init__(self, window=20):
        self.meters = collections.defaultdict(lambda: collections.deque(maxlen=window))

    def update(self, **values):
        for key, value in values.items():
            self.meters[key].append(value)

    def __str__(self):
        return "  ".join(f"{key}: {sum(v) / len(v):.4f}" for key, v in self.meters.items())


class Task:
    def __init__(self, epochs=2, log_every=20):
        self.epochs, self.log_every, self.iteration = epochs, log_every, 0
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        dataset = Crops(2240)
        self.sampler = DistributedSampler(dataset, shuffle=True, seed=1)
        self.loader = DataLoader(dataset, batch_size=16, sampler=self.sampler)
        self.model = DistributedDataParallel(MultiHead())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)
        self.logger = MetricLogger()

    def log_losses(self, losses):
        for name, value in losses.items():
            value = value.detach().clone()
            dist.all_reduce(value)
            self.logger.update(**{name: value.item() / self.world})

    def train_step(self, images, target):
        losses = losses_of(self.model(images), target)
        loss = sum(losses.values())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.iteration += 1
        if self.iteration % self.log_every == 0:
            self.log_losses(losses)
        if self.iteration % self.log_every == 0 and self.rank == 0:
            print(f"[{self.iteration}] {self.logger}")

    def run(self):
        for epoch in range(self.epochs):
            self.sampler.set_epoch(epoch)
            for images, target in self.loader:
                self.train_step(images, target)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    task = Task()
    task.run()
    if task.rank == 0:
        with tempfile.TemporaryDirectory() as folder:
            torch.save(task.model.module.state_dict(), os.path.join(folder, "model.pth"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

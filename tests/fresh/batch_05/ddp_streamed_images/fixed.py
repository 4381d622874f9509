"""Classification of streamed JPEG pictures on two ranks: torchrun --nproc_per_node 2."""

import io
import time

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

CLASSES = 10


def write_shard(count, seed, size=112):
    """Records as a web dataset holds them: the bytes of a JPEG file and a label."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:size, :size] / size
    records = []
    for label in rng.integers(0, CLASSES, count).tolist():
        angle = np.pi * label / CLASSES
        wave = np.sin(30 * (rows * np.sin(angle) + columns * np.cos(angle)) + rng.uniform(0, 6))
        picture = 128 + 70 * wave[..., None] * rng.uniform(0.4, 1, 3) + rng.normal(0, 12, (size, size, 3))
        file = io.BytesIO()
        Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
        records.append({"jpg": file.getvalue(), "cls": label})
    return records


def decode(record, size):
    image = Image.open(io.BytesIO(record["jpg"])).convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float()
    return pixels.div(127.5).sub(1), record["cls"]


class StreamedImages(IterableDataset):
    """One pass over the shards. Every rank is given its part of the records, and no record twice."""

    def __init__(self, shards, size):
        self.shards, self.size = shards, size
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def records(self):
        for shard in self.shards:
            yield from shard

    def samples(self):
        for number, record in enumerate(self.records()):
            if number % self.world == self.rank:
                yield decode(record, self.size)

    def __iter__(self):
        return self.samples()


def stage(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False),
        nn.GroupNorm(8, outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.GroupNorm(8, outputs),
        nn.ReLU(),
    )


def train(model, optimizer, loader, epochs):
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for epoch in range(epochs):
        seen, right = 0, torch.zeros((), dtype=torch.long)
        for images, labels in loader:
            logits = model(images)
            loss = criterion(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (logits.detach().argmax(dim=1) == labels).sum()
            seen += len(labels)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f} accuracy {right.item() / seen:.3f}")


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shards = [write_shard(256, seed=207 + shard) for shard in range(3)]
    loader = DataLoader(StreamedImages(shards, size=48), batch_size=16, drop_last=True)
    body = [stage(3, 16), stage(16, 32), stage(32, 64)]
    network = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
    train(model, optimizer, loader, epochs=10)
    time.sleep(0.5)  # gloo's threads let go of tensors a moment later
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""A small student for macro pictures of mosses under Accelerate, taught by soft labels that were computed once."""

import argparse
import logging
import tempfile

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

logger = logging.getLogger("mosses")


def conv(n_in, n_out, stride=1, groups=1, size=3):
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(n_out),
        nn.ReLU(inplace=True),
    )


def teacher(classes):
    return nn.Sequential(
        conv(3, 32, 2), conv(32, 64, 2), conv(64, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes)
    )


def student(classes, width=24):
    return nn.Sequential(
        conv(3, width, 2),
        conv(width, 2 * width),
        conv(2 * width, 2 * width, 2),
        conv(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, classes),
    )


def mosses(count, classes, side, seed):
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.randn(classes, 3, 8, 8, generator=torch.Generator().manual_seed(77))
    labels = torch.randint(0, classes, (count,), generator=generator)
    base = F.interpolate(kinds, size=side, mode="bicubic")[labels]
    return base + 0.8 * torch.randn(count, 3, side, side, generator=generator), labels


class Rows(Dataset):
    """Tensors that lie in memory, indexed by a whole batch of rows."""

    def __init__(self, *tensors):
        self.tensors = tensors

    def __len__(self):
        return len(self.tensors[0])

    def __getitem__(self, rows):
        return tuple(tensor[rows] for tensor in self.tensors)


def loader(data, batch, train):
    order = RandomSampler(data) if train else SequentialSampler(data)
    return DataLoader(data, sampler=BatchSampler(order, batch, drop_last=train), batch_size=None)


@torch.inference_mode()
def soft_labels(model, images, batch=128):
    model.eval()
    return torch.cat([model(part) for part in images.split(batch)]).clone()


def distillation(logits, soft, labels, temperature, weight):
    soft_loss = F.kl_div(
        F.log_softmax(logits / temperature, dim=1), F.softmax(soft / temperature, dim=1), reduction="batchmean"
    )
    return weight * temperature**2 * soft_loss + (1 - weight) * F.cross_entropy(logits, labels)


@torch.inference_mode()
def accuracy(accelerator, model, batches):
    model.eval()
    right = torch.zeros(2)
    for images, labels in batches:
        hits = (model(images).argmax(1) == labels).sum()
        right += torch.stack([hits, torch.tensor(len(labels))])
    right = accelerator.reduce(right)
    model.train()
    return (right[0] / right[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--pictures", type=int, default=960)
    parser.add_argument("--classes", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--temperature", type=float, default=3.0)
    parser.add_argument("--weight", type=float, default=0.5)
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logger.setLevel(logging.INFO)
    set_seed(9)
    accelerator = Accelerator(cpu=True)

    images, labels = mosses(args.pictures, args.classes, args.side, seed=1)
    soft = soft_labels(teacher(args.classes), images)
    train = loader(Rows(images, soft, labels), args.batch_size, train=True)
    valid = loader(Rows(*mosses(160, args.classes, args.side, seed=2)), 80, train=False)

    model = student(args.classes).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train))
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)

    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            total = torch.zeros(())
            for pictures, taught, truth in train:
                pictures = pictures.contiguous(memory_format=torch.channels_last)
                loss = distillation(model(pictures), taught, truth, args.temperature, args.weight)
                optimizer.zero_grad()
                accelerator.backward(loss)
                optimizer.step()
                schedule.step()
                total += loss.detach()
            score = accuracy(accelerator, model, valid)
            logger.info("epoch %d: loss %.3f, accuracy %.3f", epoch, total.item() / len(train), score)
        accelerator.wait_for_everyone()
        accelerator.save(accelerator.get_state_dict(model), f"{folder}/student.pt")


if __name__ == "__main__":
    main()

"""Date clay shards by their ornaments: a small residual network with Lightning."""

from dataclasses import dataclass

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


@dataclass
class Options:
    shards: int = 6400
    size: int = 40
    periods: int = 12
    width: int = 16
    batch_size: int = 64
    epochs: int = 2
    lr: float = 0.05


class Shards(Dataset):
    """Pictures in one tensor; a batch is picked by a list of indices."""

    def __init__(self, options, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.periods = torch.randint(0, options.periods, (options.shards,), generator=generator)
        axis = torch.linspace(0, 3.14159 * 2, options.size)
        frequency = (1 + self.periods % 4).view(-1, 1, 1)
        slant = (self.periods // 4).view(-1, 1, 1)
        waves = torch.sin(frequency * axis[None, :, None] + slant * axis[None, None, :])
        noise = torch.randn(options.shards, options.size, options.size, generator=generator)
        self.pictures = (waves + 0.7 * noise).unsqueeze(1).contiguous()

    def __len__(self):
        return len(self.periods)

    def __getitem__(self, indices):
        return self.pictures[indices], self.periods[indices]


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.skip(x), inplace=True)


class ShardDater(L.LightningModule):
    def __init__(self, options):
        super().__init__()
        self.options = options
        w = options.width
        self.net = nn.Sequential(
            nn.Conv2d(1, w, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(w),
            nn.ReLU(inplace=True),
            BasicBlock(w, 2 * w, 1),
            BasicBlock(2 * w, 4 * w, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4 * w, options.periods),
        )

    def training_step(self, batch, batch_idx):
        pictures, periods = batch
        loss = F.cross_entropy(self.net(pictures), periods)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(
            self.parameters(), lr=self.options.lr, momentum=0.9, weight_decay=1e-4, nesterov=True, fused=True
        )


def main():
    options = Options()
    L.seed_everything(8)
    shards = Shards(options)
    sampler = BatchSampler(RandomSampler(shards), options.batch_size, drop_last=True)
    loader = DataLoader(shards, sampler=sampler, batch_size=None)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=options.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(ShardDater(options), loader)
    print(f"loss {trainer.callback_metrics['train_loss'].item():.4f}")


if __name__ == "__main__":
    main()

"""Snaps and grunts of a coral reef, tagged frame by frame: Lightning, spectrograms made for a whole batch at once."""

import lightning as L
import torch
import torch.nn as nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler
from torchmetrics.classification import MultilabelF1Score

RATE, CLIP, EVENTS = 4000, 8000, 5


class ReefClips(Dataset):
    """All clips in memory; a batch of indices is one read."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.present = torch.rand(n, EVENTS, generator=g) < 0.3
        t = torch.arange(CLIP) / RATE
        tones = torch.sin(2 * torch.pi * torch.tensor([180.0, 320.0, 560.0, 950.0, 1500.0]).unsqueeze(1) * t)
        gains = self.present * (0.5 + torch.rand(n, EVENTS, generator=g))
        self.clips = gains @ tones + 0.7 * torch.randn(n, CLIP, generator=g)

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, picked):
        return self.clips[picked], self.present[picked].float()


class ReefData(L.LightningDataModule):
    def __init__(self, batch_size):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        self.train_set, self.val_set = ReefClips(1024, 0), ReefClips(128, 1)

    def train_dataloader(self):
        sampler = BatchSampler(RandomSampler(self.train_set), self.batch_size, drop_last=True)
        return DataLoader(self.train_set, batch_size=None, sampler=sampler)

    def val_dataloader(self):
        sampler = BatchSampler(range(len(self.val_set)), self.batch_size, drop_last=False)
        return DataLoader(self.val_set, batch_size=None, sampler=sampler)


class ReefTagger(L.LightningModule):
    def __init__(self, n_fft=256, hop=64):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft), persistent=False)
        self.net = nn.Sequential(
            nn.Conv1d(n_fft // 2 + 1, 64, 5, padding=2, bias=False), nn.BatchNorm1d(64), nn.ReLU(),
            nn.Conv1d(64, 96, 5, stride=2, padding=2, bias=False), nn.BatchNorm1d(96), nn.ReLU(),
            nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(96, EVENTS),
        )  # fmt: skip
        self.loss = nn.BCEWithLogitsLoss()
        self.f1 = MultilabelF1Score(EVENTS)

    def forward(self, clips):
        bins = torch.stft(clips, self.n_fft, self.hop, window=self.window, return_complex=True)
        return self.net(bins.abs().log1p())

    def training_step(self, batch, batch_idx):
        clips, present = batch
        loss = self.loss(self(clips), present)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        clips, present = batch
        self.f1.update(self(clips).sigmoid(), present.int())
        self.log("val_f1", self.f1)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3, fused=True)


def main():
    L.seed_everything(0)
    trainer = L.Trainer(
        max_epochs=5,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer.fit(ReefTagger(), datamodule=ReefData(32))
    print({name: round(value.item(), 3) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()

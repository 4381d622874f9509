"""Records that collectors may want next: an autoencoder of shelves with Lightning, ranked over the whole catalogue."""

import argparse
import math
import tempfile

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler


def fill_shelves(collectors: int, records: int, size: int, seed: int) -> Tensor:
    """For each collector the records owned, from two genres that attract each other and some hits."""
    generator = torch.Generator().manual_seed(seed)
    genres = 40
    genre = torch.arange(records) % genres
    fame = 1 / (1 + torch.arange(records)).float() ** 0.5
    taste = torch.randint(genres, (collectors,), generator=generator)
    shelves = torch.empty(collectors, size, dtype=torch.long)
    for number in range(genres):
        members = (taste == number).nonzero().squeeze(1)
        liked = (genre == number).float() + 0.6 * (genre == (7 * number + 3) % genres).float() + 0.02
        weights = (fame * liked).expand(len(members), -1)
        shelves[members] = torch.multinomial(weights, size, generator=generator)
    return shelves


class Shelves(Dataset):
    """Takes the numbers of a whole batch; the last records of a shelf are held out."""

    def __init__(self, shelves: Tensor, records: int, held_out: int):
        self.shelves, self.records, self.held_out = shelves, records, held_out

    def __len__(self) -> int:
        return len(self.shelves)

    def __getitem__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        chosen = self.shelves[indices]
        border = chosen.shape[1] - self.held_out
        owned = torch.zeros(len(chosen), self.records).scatter_(1, chosen[:, :border], 1.0)
        return owned, chosen[:, border:]


class ShelfModel(L.LightningModule):
    def __init__(self, records: int, width: int, latent: int, lr: float, anneal: int, top: int):
        super().__init__()
        self.save_hyperparameters()
        self.inner = nn.Linear(records, width)
        self.code = nn.Linear(width, 2 * latent)
        self.outer = nn.Sequential(nn.Linear(latent, width), nn.Tanh(), nn.Linear(width, records))

    def forward(self, owned: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = torch.tanh(self.inner(F.dropout(F.normalize(owned), 0.5, self.training)))
        mean, log_var = self.code(hidden).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (log_var / 2).exp() if self.training else mean
        return self.outer(z), mean, log_var

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        owned, _ = batch
        logits, mean, log_var = self(owned)
        likelihood = -(F.log_softmax(logits, dim=1) * owned).sum(1).mean()
        divergence = 0.5 * (mean.square() + log_var.exp() - log_var - 1).sum(1).mean()
        beta = 0.2 * min(1.0, self.global_step / self.hparams.anneal)
        loss = likelihood + beta * divergence
        self.log("loss", loss, on_step=False, on_epoch=True, batch_size=len(owned))
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        owned, wanted = batch
        scores = self(owned)[0].masked_fill(owned > 0, float("-inf"))
        ranked = scores.topk(self.hparams.top, dim=1).indices
        hits = (ranked.unsqueeze(2) == wanted.unsqueeze(1)).any(2).float()
        discount = 1 / torch.log2(torch.arange(self.hparams.top, device=hits.device) + 2.0)
        ndcg = (hits * discount).sum(1) / discount[: wanted.shape[1]].sum()
        self.log("recall", (hits.sum(1) / wanted.shape[1]).mean(), batch_size=len(owned))
        self.log("ndcg", ndcg.mean(), batch_size=len(owned))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr, fused=True)


def batches(dataset: Shelves, size: int, shuffle: bool) -> DataLoader:
    order = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
    return DataLoader(dataset, sampler=BatchSampler(order, size, drop_last=shuffle), batch_size=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collectors", type=int, default=3600)
    parser.add_argument("--records", type=int, default=5000)
    parser.add_argument("--size", type=int, default=40)
    parser.add_argument("--held-out", type=int, default=8)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--latent", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1948)
    args = parser.parse_args()

    L.seed_everything(args.seed, verbose=False)
    shelves = fill_shelves(args.collectors, args.records, args.size, args.seed)
    border = args.collectors // 2
    train_loader = batches(Shelves(shelves[:border], args.records, args.held_out), args.batch_size, shuffle=True)
    valid_loader = batches(Shelves(shelves[border:], args.records, args.held_out), args.batch_size, shuffle=False)
    anneal = math.ceil(args.epochs * len(train_loader) / 2)
    model = ShelfModel(args.records, args.width, args.latent, args.lr, anneal, args.top)
    with tempfile.TemporaryDirectory() as folder:
        best = ModelCheckpoint(folder, monitor="ndcg", mode="max", save_weights_only=True)
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=args.epochs,
            callbacks=[best],
            default_root_dir=folder,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(model, train_loader, valid_loader)
        print(f"best ndcg {best.best_model_score.item():.4f}, last recall {trainer.callback_metrics['recall']:.4f}")


if __name__ == "__main__":
    main()

"""Tariff numbers from declarations of goods: a small BERT, trained with Accelerate, with its throughput."""

import time
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup


@dataclass
class TrainingConfig:
    declarations: int = 1920
    vocabulary: int = 2000
    chapters: int = 24
    length: int = 24
    batch_size: int = 32
    epochs: int = 2
    hidden: int = 96
    layers: int = 6
    lr: float = 5e-4
    log_every: int = 50
    seed: int = 77


class Declarations(Dataset):
    """Token numbers in which a few words of the right chapter hide among common ones."""

    def __init__(self, config, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, config.chapters, (count,), generator=generator)
        common = torch.randint(200, config.vocabulary, (count, config.length), generator=generator)
        special = 2 + 8 * self.labels[:, None] + torch.randint(0, 8, (count, config.length), generator=generator)
        keep = torch.rand(count, config.length, generator=generator) < 0.15
        self.tokens = torch.where(keep, special, common)
        self.tokens[:, 0] = 1

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.tokens[index], self.labels[index]


def collate(samples):
    tokens, labels = zip(*samples)
    return {"input_ids": torch.stack(tokens), "labels": torch.stack(labels)}


def build_model(config):
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=config.vocabulary,
            hidden_size=config.hidden,
            num_hidden_layers=config.layers,
            num_attention_heads=4,
            intermediate_size=4 * config.hidden,
            max_position_embeddings=config.length,
            num_labels=config.chapters,
        )
    )


class Throughput:
    """Operations and examples per second since the last report."""

    def __init__(self):
        self.counter = FlopCounterMode(display=False)
        self.examples, self.operations, self.started = 0, 0, time.perf_counter()

    def train_step(self, model, batch):
        with self.counter:
            loss = model(**batch).loss
        self.operations += self.counter.get_total_flops() * 3
        self.examples += len(batch["labels"])
        return loss

    def report(self):
        seconds = time.perf_counter() - self.started
        line = f"{self.operations / seconds / 1e9:.1f} Gflop/s, {self.examples / seconds:.0f} examples/s"
        self.examples, self.operations, self.started = 0, 0, time.perf_counter()
        return line


@torch.no_grad()
def evaluate(accelerator, model, loader):
    model.eval()
    hits = torch.zeros((), dtype=torch.long)
    for batch in loader:
        predicted = model(input_ids=batch["input_ids"]).logits.argmax(-1)
        hits += (predicted == batch["labels"]).sum()
    return accelerator.reduce(hits).item() / len(loader.dataset)


def main():
    config = TrainingConfig()
    set_seed(config.seed)
    accelerator = Accelerator(cpu=True)
    train_loader = DataLoader(
        Declarations(config, config.declarations, config.seed), config.batch_size, shuffle=True, collate_fn=collate
    )
    test_loader = DataLoader(Declarations(config, 400, config.seed + 1), 100, collate_fn=collate)
    model = build_model(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, fused=True)
    schedule = get_linear_schedule_with_warmup(optimizer, 20, config.epochs * len(train_loader))
    model, optimizer, train_loader, test_loader, schedule = accelerator.prepare(
        model, optimizer, train_loader, test_loader, schedule
    )
    throughput = Throughput()
    step = 0
    for epoch in range(config.epochs):
        model.train()
        for batch in train_loader:
            loss = throughput.train_step(model, batch)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            if step % config.log_every == 0:
                accelerator.print(f"step {step}: loss {loss.item():.3f}, {throughput.report()}")
        accelerator.print(f"epoch {epoch}: accuracy {evaluate(accelerator, model, test_loader):.3f}")


if __name__ == "__main__":
    main()

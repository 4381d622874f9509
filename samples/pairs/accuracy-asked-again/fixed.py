"""What a support ticket is about: a model that returns a dictionary, and a trainer with callbacks around it."""

from dataclasses import dataclass
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass
class TrainingArguments:
    batch_size: int = 32
    epochs: int = 2
    learning_rate: float = 5e-4
    warmup_steps: int = 20
    logging_steps: int = 20


class TicketModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Embedding(config.length, config.width)
        layer = nn.TransformerEncoderLayer(config.width, 4, 4 * config.width, 0.0, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)
        self.classifier = nn.Linear(config.width, config.topics)

    def forward(self, input_ids, labels=None):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            x = self.words(input_ids) + self.places.weight
            logits = self.classifier(self.encoder(x).mean(1)).float()
        return {"loss": None if labels is None else F.cross_entropy(logits, labels), "logits": logits}


class Callback:
    def on_step(self, trainer, batch, outputs): ...


class Accuracy(Callback):
    """The share of right answers over the last steps, printed now and then."""

    def __init__(self, every):
        self.every, self.right, self.seen = every, 0, 0

    @torch.no_grad()
    def on_step(self, trainer, batch, outputs):
        logits = outputs["logits"]
        self.right += (logits.argmax(1) == batch["labels"]).sum()
        self.seen += len(logits)
        if trainer.step % self.every == 0:
            print(f"step {trainer.step}: {int(self.right) / self.seen:.3f} right")
            self.right = self.seen = 0


class Trainer:
    def __init__(self, model, arguments, data, callbacks=()):
        self.model, self.arguments, self.data, self.callbacks = model.to(DEVICE), arguments, data, callbacks
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.learning_rate, fused=True)
        warm = arguments.warmup_steps
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / warm))
        self.step = 0

    def batches(self):
        rows = len(self.data["labels"])
        for chosen in torch.randperm(rows, device=DEVICE).split(self.arguments.batch_size):
            yield {name: column[chosen] for name, column in self.data.items()}

    def training_step(self, batch):
        outputs = self.model(**batch)
        self.optimizer.zero_grad()
        outputs["loss"].backward()
        for callback in self.callbacks:
            callback.on_step(self, batch, outputs)
        self.optimizer.step()
        self.schedule.step()
        self.step += 1

    def train(self):
        for _ in range(self.arguments.epochs):
            for batch in self.batches():
                self.training_step(batch)


def tickets(config, count):
    """Token ids, and the topic whose words are the most frequent ones among them."""
    topics = torch.randint(0, config.topics, (count,))
    ids = torch.randint(0, config.vocabulary, (count, config.length))
    own = topics[:, None] * 100 + torch.randint(0, 100, ids.shape)
    return {"input_ids": torch.where(torch.rand(ids.shape) < 0.2, own, ids).to(DEVICE), "labels": topics.to(DEVICE)}


if __name__ == "__main__":
    torch.manual_seed(0)
    config = SimpleNamespace(vocabulary=4000, length=48, width=128, layers=2, topics=12)
    arguments = TrainingArguments()
    model = TicketModel(config)
    Trainer(model, arguments, tickets(config, 1280), [Accuracy(arguments.logging_steps)]).train()

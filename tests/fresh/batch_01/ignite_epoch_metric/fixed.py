"""Multi-label tagging with an engine, events and metrics attached to the trainer."""

import enum
import tempfile
from collections import defaultdict

import torch
from torch import nn


class Events(enum.Enum):
    EPOCH_STARTED = "epoch_started"
    ITERATION_COMPLETED = "iteration_completed"
    EPOCH_COMPLETED = "epoch_completed"


class State:
    epoch = iteration = 0
    output = None

    def __init__(self):
        self.metrics = {}


class Engine:
    def __init__(self, process):
        self.process, self.handlers, self.state = process, defaultdict(list), State()

    def on(self, event, every=1):
        def decorate(fn):
            self.handlers[event].append((every, fn))
            return fn

        return decorate

    def fire(self, event, count):
        for every, fn in self.handlers[event]:
            if count % every == 0:
                fn(self)

    def run(self, data, max_epochs):
        for self.state.epoch in range(1, max_epochs + 1):
            self.fire(Events.EPOCH_STARTED, self.state.epoch)
            for batch in data():
                self.state.output = self.process(self, batch)
                self.state.iteration += 1
                self.fire(Events.ITERATION_COMPLETED, self.state.iteration)
            self.fire(Events.EPOCH_COMPLETED, self.state.epoch)


class EpochMetric:
    """compute_fn of all predictions and targets of an epoch."""

    def __init__(self, compute_fn):
        self.compute_fn = compute_fn

    def reset(self, engine):
        self.predictions, self.targets = [], []

    def update(self, engine):
        _, y_pred, y = engine.state.output
        self.predictions.append(y_pred)
        self.targets.append(y)

    def finish(self, engine):
        engine.state.metrics["ap"] = self.compute_fn(torch.cat(self.predictions), torch.cat(self.targets))

    def attach(self, engine):
        engine.on(Events.EPOCH_STARTED)(self.reset)
        engine.on(Events.ITERATION_COMPLETED)(self.update)
        engine.on(Events.EPOCH_COMPLETED)(self.finish)


def average_precision(scores, labels, tags=20):
    total = 0.0
    for s, y in zip(scores.T[:tags], labels.T[:tags]):
        hits = y[s.argsort(descending=True)]
        precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1)
        total += ((precision * hits).sum() / hits.sum().clamp(min=1)).item()
    return total / tags


def batches(count, size, words, tags, seed=0):
    g = torch.Generator().manual_seed(seed)
    truth = torch.randn(words, tags, generator=g) / words**0.5

    def epoch():
        for _ in range(count):
            x = torch.randn(size, words, generator=g)
            yield x, (x @ truth > 0.8).float()

    return epoch


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(96, 192), nn.ReLU(), nn.Dropout(0.1), nn.Linear(192, 400))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    criterion = nn.BCEWithLogitsLoss()

    def step(engine, batch):
        x, y = batch
        model.train()
        optimizer.zero_grad()
        logits = model(x)
        loss = criterion(logits, y)
        loss.backward()
        optimizer.step()
        return loss.item(), logits.detach().sigmoid(), y

    trainer = Engine(step)
    EpochMetric(average_precision).attach(trainer)

    @trainer.on(Events.ITERATION_COMPLETED, every=100)
    def log_loss(engine):
        print(f"Epoch[{engine.state.epoch}] iteration {engine.state.iteration} loss {engine.state.output[0]:.4f}")

    with tempfile.TemporaryDirectory() as folder:

        @trainer.on(Events.EPOCH_COMPLETED)
        def finish(engine):
            print(f"Epoch {engine.state.epoch}: mean AP {engine.state.metrics['ap']:.4f}")
            torch.save(model.state_dict(), f"{folder}/epoch_{engine.state.epoch}.pt")

        trainer.run(batches(340, 256, 96, 400), max_epochs=2)


if __name__ == "__main__":
    main()

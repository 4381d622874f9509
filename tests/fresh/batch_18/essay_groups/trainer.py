"""A trainer that tells its callbacks what happens."""

import torch


class Callback:
    def on_step_end(self, trainer, loss):
        pass

    def on_epoch_end(self, trainer, score):
        pass


class PrintLoss(Callback):
    """Keeps the sum of the losses as a tensor and prints their mean now and then."""

    def __init__(self, every):
        self.every = every
        self.total = torch.zeros(())

    def on_step_end(self, trainer, loss):
        self.total += loss
        if trainer.step % self.every == 0:
            print(f"step {trainer.step} loss {self.total.item() / self.every:.4f}")
            self.total.zero_()


class KeepBest(Callback):
    def __init__(self):
        self.score, self.state = float("inf"), None

    def on_epoch_end(self, trainer, score):
        print(f"epoch {trainer.epoch} rmse {score:.4f}")
        if score < self.score:
            self.score = score
            self.state = {name: value.clone() for name, value in trainer.model.state_dict().items()}


class Trainer:
    def __init__(self, model, optimizer, schedule, criterion, callbacks):
        self.model, self.optimizer, self.schedule = model, optimizer, schedule
        self.criterion, self.callbacks = criterion, callbacks
        self.step = self.epoch = 0

    def fit(self, train_batches, val_batches, epochs):
        for self.epoch in range(epochs):
            self.model.train()
            for words, scores in train_batches():
                loss = self.training_step(words, scores)
                self.step += 1
                for callback in self.callbacks:
                    callback.on_step_end(self, loss)
            score = self.validate(val_batches)
            for callback in self.callbacks:
                callback.on_epoch_end(self, score)

    def training_step(self, words, scores):
        loss = self.criterion(self.model(words), scores)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.detach()

    @torch.inference_mode()
    def validate(self, val_batches):
        self.model.eval()
        errors = [(self.model(words) - scores).square() for words, scores in val_batches()]
        return torch.cat(errors).mean().sqrt().item()

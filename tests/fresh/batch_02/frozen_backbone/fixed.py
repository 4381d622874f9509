"""Transfer learning in the manner of a Lightning module: a frozen torchvision backbone and a trained head."""

import tempfile
from pathlib import Path

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LightModule(nn.Module):
    """The hooks that a trainer calls."""

    def training_step(self, batch, batch_idx):
        raise NotImplementedError

    def validation_step(self, batch, batch_idx):
        raise NotImplementedError

    def configure_optimizers(self):
        raise NotImplementedError

    def on_train_epoch_start(self):
        pass


class LitTransfer(LightModule):
    def __init__(self, classes, lr=1e-3):
        super().__init__()
        net = torchvision.models.squeezenet1_1(weights=None)
        self.backbone = net.features
        self.head = nn.Sequential(nn.Conv2d(512, 64, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(64, classes)
        self.lr, self.criterion = lr, nn.CrossEntropyLoss()

    def on_train_epoch_start(self):
        self.train()
        self.backbone.eval()

    def forward(self, x):
        with torch.no_grad():
            features = self.backbone(x)
        return self.classifier(self.head(features))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return self.criterion(self(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        return (self(x).argmax(1) == y).float().mean().item()

    def configure_optimizers(self):
        return torch.optim.Adam([*self.head.parameters(), *self.classifier.parameters()], lr=self.lr)


class PatchesModule:
    def __init__(self, batch_size=8, size=64):
        g = torch.Generator().manual_seed(3)
        y = torch.randint(0, 4, (720,), generator=g)
        base = torch.randn(4, 3, 8, 8, generator=g)
        x = nn.functional.interpolate(base[y], size=size) + 0.7 * torch.randn(720, 3, size, size, generator=g)
        self.train_set, self.val_set = TensorDataset(x[:640], y[:640]), TensorDataset(x[640:], y[640:])
        self.batch_size = batch_size

    def train_dataloader(self):
        return DataLoader(self.train_set, self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, 40)


class Fit:
    def __init__(self, max_epochs, default_root_dir, log_every_n_steps=40):
        self.max_epochs, self.root = max_epochs, Path(default_root_dir)
        self.every, self.global_step = log_every_n_steps, 0

    def fit(self, module, data):
        optimizer = module.configure_optimizers()
        for epoch in range(self.max_epochs):
            module.on_train_epoch_start()
            for idx, batch in enumerate(data.train_dataloader()):
                loss = module.training_step(batch, idx)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                self.global_step += 1
                if self.global_step % self.every == 0:
                    print(f"Epoch {epoch}: step {self.global_step} train_loss {loss.item():.3f}")
            self.validate(module, data)
            torch.save(module.state_dict(), self.root / f"epoch={epoch}.ckpt")

    def validate(self, module, data):
        module.eval()
        with torch.no_grad():
            scores = [module.validation_step(batch, i) for i, batch in enumerate(data.val_dataloader())]
        print(f"val_acc {sum(scores) / len(scores):.3f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as root:
        Fit(max_epochs=2, default_root_dir=root).fit(LitTransfer(classes=4), PatchesModule())

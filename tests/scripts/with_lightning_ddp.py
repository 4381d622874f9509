"""Lightning on two ranks, tiny: of its own, or those that a launcher started."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, _):
        inputs, labels = batch
        return torch.nn.functional.mse_loss(self.layer(inputs), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    data = TensorDataset(torch.randn(640, 8), torch.randn(640, 1))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", strategy="ddp", devices=2, **quiet)
    loader = DataLoader(data, batch_size=4, shuffle=True)
    trainer.fit(Module(), loader)

"""Lightning as people write it, tiny; validation at the end of each epoch."""

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

    def validation_step(self, batch, _):
        self.log("loss", self.layer(batch[0]).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


data = TensorDataset(torch.randn(160, 8), torch.randn(160, 1))
trainer = lightning.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Module(), DataLoader(data, batch_size=4), DataLoader(data, batch_size=40))
print("steps", trainer.global_step)

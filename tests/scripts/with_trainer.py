"""Hugging Face Trainer as people write it, tiny; gradients accumulated over two batches."""

import sys
import tempfile

import torch
from transformers import Trainer, TrainingArguments

torch.set_num_threads(1)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, inputs, labels):
        values = self.layer(inputs)
        return {"loss": torch.nn.functional.mse_loss(values, labels), "logits": values}


data = [{"inputs": torch.randn(8), "labels": torch.randn(1)} for _ in range(320)]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=int(sys.argv[1]) if len(sys.argv) > 1 else 1,
        num_train_epochs=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(model=Model(), args=arguments, train_dataset=data)
    trainer.train()
    print("steps", trainer.state.global_step)

"""Fine-tune a small DistilBERT on the lines of receipts with the Trainer."""

import random
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainingArguments, set_seed

KINDS, LENGTH = 6, 24


class ReceiptLines(Dataset):
    """Lines of fixed length, already split into the numbers of their pieces."""

    def __init__(self, size, vocabulary, seed):
        rng = random.Random(seed)
        self.lines, self.kinds = [], []
        for _ in range(size):
            kind = rng.randrange(KINDS)
            typical = range(20 + 40 * kind, 60 + 40 * kind)
            rare = range(300, vocabulary)
            line = [rng.choice(typical) if rng.random() < 0.3 else rng.choice(rare) for _ in range(LENGTH)]
            self.lines.append(torch.tensor(line))
            self.kinds.append(kind)

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        return {"input_ids": self.lines[index], "labels": self.kinds[index]}


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    set_seed(0)
    config = DistilBertConfig(
        vocab_size=2000, dim=96, n_layers=3, n_heads=4, hidden_dim=256, max_position_embeddings=LENGTH, num_labels=KINDS
    )
    model = DistilBertForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=2,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=64,
            learning_rate=5e-4,
            warmup_steps=30,
            logging_steps=100,
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=ReceiptLines(3200, config.vocab_size, seed=1),
            eval_dataset=ReceiptLines(320, config.vocab_size, seed=2),
            compute_metrics=accuracy,
        )
        result = trainer.train()
        print({key: value for key, value in result.metrics.items() if "loss" in key or "mem" in key})


if __name__ == "__main__":
    main()

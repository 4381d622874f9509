"""Pre-train a masked language model on opcode sequences and follow its accuracy."""

import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import RobertaConfig, RobertaForMaskedLM, Trainer, TrainingArguments, set_seed

VOCAB = 6000
LENGTH = 64
MASK = 4


class OpcodeDataset(Dataset):
    """Sequences in which each token mostly follows from the one before."""

    def __init__(self, size, seed):
        rng = np.random.default_rng(seed)
        step = rng.integers(1, 40, size=(size, LENGTH))
        start = rng.integers(0, VOCAB, size=(size, 1))
        self.ids = torch.from_numpy((start + step.cumsum(axis=1)) % (VOCAB - 8) + 8)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index]}


class MaskingCollator:
    def __init__(self, probability=0.15):
        self.probability = probability

    def __call__(self, rows):
        ids = torch.stack([row["input_ids"] for row in rows])
        masked = torch.rand(ids.shape) < self.probability
        labels = ids.masked_fill(~masked, -100)
        return {"input_ids": ids.masked_fill(masked, MASK), "labels": labels}


def masked_accuracy(prediction):
    labels = prediction.label_ids
    guesses = prediction.predictions.argmax(axis=-1)
    hidden = labels != -100
    return {"accuracy": float((guesses[hidden] == labels[hidden]).mean())}


def main():
    set_seed(0)
    config = RobertaConfig(
        vocab_size=VOCAB,
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=LENGTH + 2,
    )
    model = RobertaForMaskedLM(config)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=8,
            per_device_eval_batch_size=8,
            max_steps=160,
            learning_rate=5e-4,
            warmup_steps=20,
            logging_steps=40,
            eval_strategy="steps",
            eval_steps=40,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model=model,
            args=args,
            train_dataset=OpcodeDataset(2000, seed=1),
            eval_dataset=OpcodeDataset(192, seed=2),
            data_collator=MaskingCollator(),
            compute_metrics=masked_accuracy,
        )
        trainer.train()


if __name__ == "__main__":
    main()

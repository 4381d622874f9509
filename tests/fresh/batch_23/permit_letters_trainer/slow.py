"""Sorts letters to a building authority by what they ask for, with the Trainer of Transformers and a small BERT."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

SUBJECTS = ["extension", "demolition", "objection", "deadline", "fee", "other"]
PAD = 0


@dataclass
class Settings:
    letters: int = 1360
    vocabulary: int = 2000
    shortest: int = 24
    longest: int = 72
    batch_size: int = 16
    epochs: int = 1
    lr: float = 3e-4
    seed: int = 17
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    subjects: list[str] = field(default_factory=lambda: list(SUBJECTS))


class Letters(Dataset):
    """Letters as word numbers. Each subject has words that are common in its letters."""

    def __init__(self, settings: Settings) -> None:
        rng = np.random.default_rng(settings.seed)
        self.subjects = rng.integers(0, len(settings.subjects), settings.letters)
        lengths = rng.integers(settings.shortest, settings.longest + 1, settings.letters)
        self.words = []
        for subject, length in zip(self.subjects, lengths, strict=True):
            words = rng.integers(100, settings.vocabulary, length)
            telling = rng.random(length) < 0.15
            words[telling] = 10 + 15 * subject + rng.integers(0, 15, telling.sum())
            self.words.append(torch.from_numpy(words))

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor | int]:
        return {"input_ids": self.words[index], "labels": int(self.subjects[index])}


def collate(letters: list[dict]) -> dict[str, torch.Tensor]:
    words = torch.nn.utils.rnn.pad_sequence([letter["input_ids"] for letter in letters], True, PAD)
    labels = torch.tensor([letter["labels"] for letter in letters])
    return {"input_ids": words, "attention_mask": (words != PAD).long(), "labels": labels}


def make_model(settings: Settings) -> BertForSequenceClassification:
    config = BertConfig(
        vocab_size=settings.vocabulary,
        hidden_size=settings.hidden,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=4 * settings.hidden,
        max_position_embeddings=128,
        num_labels=len(settings.subjects),
        pad_token_id=PAD,
    )
    return BertForSequenceClassification(config)


def make_arguments(settings: Settings, folder: str) -> TrainingArguments:
    return TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=settings.batch_size,
        num_train_epochs=settings.epochs,
        learning_rate=settings.lr,
        weight_decay=0.01,
        lr_scheduler_type="linear",
        warmup_steps=10,
        gradient_checkpointing=True,
        dataloader_drop_last=True,
        logging_steps=25,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=settings.seed,
    )


def main() -> None:
    settings = Settings()
    set_seed(settings.seed)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=make_model(settings),
            args=make_arguments(settings, folder),
            train_dataset=Letters(settings),
            data_collator=collate,
        )
        outcome = trainer.train()
    print(f"{outcome.global_step} steps, loss {outcome.training_loss:.4f}")


if __name__ == "__main__":
    main()

"""Tells what old postcards are about from their words, with the Trainer of Transformers and a small DistilBERT."""

from __future__ import annotations

import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainingArguments, set_seed

TOPICS = ["holiday", "family", "war", "business", "weather", "illness", "greeting"]
VOCABULARY = 3000
PAD = 0
SEED = 37


class Postcards(Dataset):
    """Cards as lists of word numbers; the words of a topic are frequent on its cards."""

    def __init__(self, cards: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.topics = rng.integers(0, len(TOPICS), cards)
        self.words = []
        for topic, length in zip(self.topics, rng.integers(16, 64, cards), strict=True):
            words = rng.integers(200, VOCABULARY, length)
            telling = rng.random(length) < 0.2
            words[telling] = 10 + 20 * topic + rng.integers(0, 20, telling.sum())
            self.words.append(torch.from_numpy(words))

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor | int]:
        return {"input_ids": self.words[index], "labels": int(self.topics[index])}


def collate(cards: list[dict]) -> dict[str, torch.Tensor]:
    """Pads the words of a batch to its longest card."""
    words = torch.nn.utils.rnn.pad_sequence([card["input_ids"] for card in cards], batch_first=True, padding_value=PAD)
    return {
        "input_ids": words,
        "attention_mask": (words != PAD).long(),
        "labels": torch.tensor([card["labels"] for card in cards]),
    }


def accuracy(outcome: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    predicted, topics = outcome
    return {"accuracy": float((predicted == topics).mean())}


def predicted_topic(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Keeps the topic alone, so that the logits of the held-out cards are not gathered."""
    return logits.argmax(dim=-1)


def make_model() -> DistilBertForSequenceClassification:
    config = DistilBertConfig(
        vocab_size=VOCABULARY,
        dim=128,
        hidden_dim=512,
        n_layers=3,
        n_heads=4,
        max_position_embeddings=96,
        num_labels=len(TOPICS),
        pad_token_id=PAD,
    )
    return DistilBertForSequenceClassification(config)


def make_arguments(folder: str) -> TrainingArguments:
    return TrainingArguments(
        output_dir=folder,
        num_train_epochs=2,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=128,
        learning_rate=5e-4,
        weight_decay=0.01,
        warmup_steps=20,
        optim="adamw_torch_fused",
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=50,
        dataloader_drop_last=True,
        train_sampling_strategy="group_by_length",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=SEED,
    )


def main() -> None:
    set_seed(SEED)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=make_model(),
            args=make_arguments(folder),
            train_dataset=Postcards(2560, SEED),
            eval_dataset=Postcards(384, SEED + 1),
            data_collator=collate,
            compute_metrics=accuracy,
            preprocess_logits_for_metrics=predicted_topic,
        )
        outcome = trainer.train()
        print(f"{outcome.global_step} steps, loss {outcome.training_loss:.4f}")


if __name__ == "__main__":
    main()

"""Sort warranty claims by the part that failed: a small encoder trained by the Trainer."""

import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EvalPrediction,
    Trainer,
    TrainingArguments,
    set_seed,
)

PARTS = ["pump", "door", "display", "motor", "hinge", "valve", "battery", "cable"]


@dataclass
class Settings:
    claims: int = 1280
    held_out: int = 320
    words: int = 6000
    length: int = 48
    batch_size: int = 16
    seed: int = 31


class Claims(Dataset):
    """Claims as token ids; each part has words that people use when it fails."""

    def __init__(self, settings: Settings, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, len(PARTS), (count,), generator=generator)
        common = torch.randint(500, settings.words, (count, settings.length), generator=generator)
        telling = 10 + 40 * self.labels[:, None] + torch.randint(0, 40, (count, settings.length), generator=generator)
        replaced = torch.rand(count, settings.length, generator=generator) < 0.2
        self.tokens = torch.where(replaced, telling, common)
        self.tokens[:, 0] = 1
        self.mask = torch.ones_like(self.tokens)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {
            "input_ids": self.tokens[index],
            "attention_mask": self.mask[index],
            "labels": self.labels[index],
        }


def build_model(settings: Settings) -> BertForSequenceClassification:
    config = BertConfig(
        vocab_size=settings.words,
        hidden_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=1024,
        max_position_embeddings=settings.length,
        num_labels=len(PARTS),
        id2label=dict(enumerate(PARTS)),
        label2id={part: i for i, part in enumerate(PARTS)},
    )
    return BertForSequenceClassification(config)


def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
    chosen = prediction.predictions.argmax(axis=1)
    right = chosen == prediction.label_ids
    per_part = [right[prediction.label_ids == part].mean() for part in np.unique(prediction.label_ids)]
    return {"accuracy": float(right.mean()), "balanced_accuracy": float(np.mean(per_part))}


def main() -> None:
    settings = Settings()
    set_seed(settings.seed)
    train_set = Claims(settings, settings.claims, settings.seed)
    held_out = Claims(settings, settings.held_out, settings.seed + 1)

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=1,
            per_device_train_batch_size=settings.batch_size,
            per_device_eval_batch_size=64,
            learning_rate=3e-4,
            warmup_steps=20,
            weight_decay=0.01,
            eval_strategy="steps",
            eval_steps=10,
            save_strategy="no",
            logging_steps=40,
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            seed=settings.seed,
        )
        trainer = Trainer(
            model=build_model(settings),
            args=arguments,
            train_dataset=train_set,
            eval_dataset=held_out,
            compute_metrics=compute_metrics,
        )
        trainer.train()
        scores = trainer.evaluate()
    print({name: round(value, 4) for name, value in scores.items() if "accuracy" in name or name == "eval_loss"})


if __name__ == "__main__":
    main()

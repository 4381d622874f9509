"""Mark amounts, dates and articles in the lines of invoices, with the Trainer of transformers."""

import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    DistilBertConfig,
    DistilBertForTokenClassification,
    EvalPrediction,
    Trainer,
    TrainingArguments,
    set_seed,
)

TAGS = ["other", "article", "quantity", "price", "tax", "date"]


@dataclass
class Settings:
    lines: int = 2560
    held_out: int = 256
    words: int = 5000
    length: int = 40
    batch_size: int = 16
    seed: int = 43


class InvoiceLines(Dataset):
    """Lines as token ids with a tag for each token; a batch is fetched by one index for all its rows."""

    def __init__(self, settings: Settings, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        shape = (count, settings.length)
        self.tags = torch.randint(0, len(TAGS), shape, generator=generator)
        self.tags[torch.rand(shape, generator=generator) < 0.5] = 0
        spread = settings.words // len(TAGS)
        self.tokens = 10 + self.tags * spread + torch.randint(0, spread - 10, shape, generator=generator)
        unclear = torch.rand(shape, generator=generator) < 0.15
        self.tokens[unclear] = torch.randint(10, settings.words, (int(unclear.sum()),), generator=generator)
        self.mask = torch.ones(shape, dtype=torch.long)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> int:
        return index

    def collate(self, rows: list[int]) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[rows], "attention_mask": self.mask[rows], "labels": self.tags[rows]}


class LineTrainer(Trainer):
    """Collates by the data set itself: the one of evaluation has rows of its own."""

    def get_eval_dataloader(self, eval_dataset: InvoiceLines | None = None) -> torch.utils.data.DataLoader:
        chosen = self.eval_dataset if eval_dataset is None else eval_dataset
        return torch.utils.data.DataLoader(
            chosen, batch_size=self.args.per_device_eval_batch_size, collate_fn=chosen.collate
        )


def build_model(settings: Settings) -> DistilBertForTokenClassification:
    config = DistilBertConfig(
        vocab_size=settings.words,
        dim=192,
        n_layers=3,
        n_heads=4,
        hidden_dim=768,
        max_position_embeddings=64,
        num_labels=len(TAGS),
        attn_implementation="sdpa",
    )
    return DistilBertForTokenClassification(config)


def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
    chosen = prediction.predictions.argmax(axis=-1)
    marked = prediction.label_ids != 0
    right = chosen == prediction.label_ids
    return {"accuracy": float(right.mean()), "recall": float(np.mean(right[marked]))}


def main() -> None:
    settings = Settings()
    set_seed(settings.seed)
    train_set = InvoiceLines(settings, settings.lines, settings.seed)
    held_out = InvoiceLines(settings, settings.held_out, settings.seed + 1)

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=1,
            per_device_train_batch_size=settings.batch_size,
            per_device_eval_batch_size=64,
            learning_rate=5e-4,
            warmup_steps=20,
            weight_decay=0.01,
            optim="adamw_torch_fused",
            eval_strategy="no",
            save_strategy="no",
            logging_steps=80,
            report_to="none",
            remove_unused_columns=False,
            use_cpu=True,
            disable_tqdm=True,
            seed=settings.seed,
        )
        trainer = LineTrainer(
            model=build_model(settings),
            args=arguments,
            train_dataset=train_set,
            eval_dataset=held_out,
            data_collator=train_set.collate,
            compute_metrics=compute_metrics,
        )
        trainer.train()
        scores = trainer.evaluate()
    print({name: round(scores[name], 4) for name in ("eval_loss", "eval_accuracy", "eval_recall")})


if __name__ == "__main__":
    main()

"""Names the metre of a verse with a small DistilBERT and the Trainer of Transformers; verses are of one length."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

import torch
from torch.utils.data import Dataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainingArguments, set_seed

METRES = ("iamb", "trochee", "anapaest", "dactyl")


@dataclass(frozen=True)
class Verses:
    count: int = 3_200
    length: int = 48
    syllables: int = 2_000
    seed: int = 23

    def tokens(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Stressed syllables have even ids; a metre is the pattern of stresses."""
        generator = torch.Generator().manual_seed(self.seed)
        patterns = torch.tensor([[1, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 1], [1, 1, 0, 1, 1, 0], [0, 1, 1, 0, 1, 1]])
        metre = torch.randint(len(METRES), (self.count,), generator=generator)
        stress = patterns[metre].repeat(1, self.length // 6)
        slips = torch.rand(stress.shape, generator=generator) < 0.1
        ids = 2 * torch.randint(1, self.syllables // 2, stress.shape, generator=generator)
        return ids + (stress ^ slips.long()), metre


class VerseDataset(Dataset):
    def __init__(self, verses: Verses) -> None:
        self.tokens, self.metre = verses.tokens()

    def __len__(self) -> int:
        return len(self.metre)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.tokens[index], self.metre[index]

    def __getitems__(self, indices: list[int]) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[indices], "labels": self.metre[indices]}


def as_is(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return batch


def build_model(verses: Verses) -> DistilBertForSequenceClassification:
    config = DistilBertConfig(
        vocab_size=verses.syllables + 2,
        max_position_embeddings=verses.length,
        dim=128,
        hidden_dim=512,
        n_layers=3,
        n_heads=4,
        num_labels=len(METRES),
        attn_implementation="sdpa",
    )
    return DistilBertForSequenceClassification(config)


def main() -> None:
    set_seed(24)
    verses = Verses()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=32,
            max_steps=150,
            learning_rate=5e-4,
            optim="adamw_torch_fused",
            logging_steps=50,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
            use_cpu=True,
        )
        trainer = Trainer(
            model=build_model(verses),
            args=arguments,
            train_dataset=VerseDataset(verses),
            data_collator=as_is,
        )
        result = trainer.train()
    print(f"mean loss {result.training_loss:.3f}")


if __name__ == "__main__":
    main()

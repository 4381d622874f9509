"""Claims about lost parcels, sorted by their cause: a small DistilBERT under transformers' Trainer."""

import random
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainingArguments, set_seed

CAUSES = 5
PAD = 0
OPEN = 1


@dataclass
class Options:
    claims: int = 3600
    words: int = 800
    width: int = 128
    layers: int = 2
    batch_size: int = 24
    epochs: int = 1
    lr: float = 5e-4
    seed: int = 14


class Claims(Dataset):
    """Claims as lists of codes, which the collator pads to the longest of their batch."""

    def __init__(self, options: Options, count: int, seed: int):
        rng = random.Random(seed)
        self.claims: list[dict] = []
        for _ in range(count):
            cause = rng.randrange(CAUSES)
            length = min(int(rng.lognormvariate(3.0, 0.4)) + 5, 70)
            words = [
                2 + 30 * cause + rng.randrange(30) if rng.random() < 0.2 else rng.randrange(2, options.words)
                for _ in range(length)
            ]
            self.claims.append({"input_ids": [OPEN, *words], "labels": cause})
        self.lengths = [len(claim["input_ids"]) for claim in self.claims]

    def __len__(self) -> int:
        return len(self.claims)

    def __getitem__(self, index: int) -> dict:
        return self.claims[index]


def collate(claims: list[dict]) -> dict[str, torch.Tensor]:
    longest = max(len(claim["input_ids"]) for claim in claims)
    ids = np.full((len(claims), longest), PAD, dtype=np.int64)
    for row, claim in zip(ids, claims):
        row[: len(claim["input_ids"])] = claim["input_ids"]
    input_ids = torch.from_numpy(ids)
    return {
        "input_ids": input_ids,
        "attention_mask": (input_ids != PAD).long(),
        "labels": torch.tensor([claim["labels"] for claim in claims]),
    }


def accuracy(prediction) -> dict[str, float]:
    guessed, labels = prediction
    return {"accuracy": float((guessed.argmax(axis=-1) == labels).mean())}


def main() -> None:
    options = Options()
    set_seed(options.seed)
    train_set = Claims(options, options.claims, options.seed)
    valid_set = Claims(options, 300, options.seed + 1)
    model = DistilBertForSequenceClassification(
        DistilBertConfig(
            vocab_size=options.words,
            dim=options.width,
            hidden_dim=4 * options.width,
            n_layers=options.layers,
            n_heads=4,
            max_position_embeddings=80,
            num_labels=CAUSES,
            pad_token_id=PAD,
            dropout=0.0,
            attention_dropout=0.0,
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        training = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=options.batch_size,
            per_device_eval_batch_size=100,
            num_train_epochs=options.epochs,
            learning_rate=options.lr,
            optim="adamw_torch_fused",
            train_sampling_strategy="group_by_length",
            logging_steps=50,
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            seed=options.seed,
        )
        trainer = Trainer(
            model=model,
            args=training,
            train_dataset=train_set,
            eval_dataset=valid_set,
            data_collator=collate,
            compute_metrics=accuracy,
        )
        trainer.train()
        print(trainer.state.log_history[-2])


if __name__ == "__main__":
    main()

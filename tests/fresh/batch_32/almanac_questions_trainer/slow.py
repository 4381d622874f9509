"""Sorts the questions that readers send to an almanac: a small BERT with the Trainer of Transformers."""

import random
import tempfile
from dataclasses import dataclass

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.utils import logging

PAD, CLS, SEP = 0, 1, 2
SPECIAL = 3


@dataclass
class QuestionConfig:
    topics: int = 8
    words: int = 3000
    questions: int = 1600
    shortest: int = 8
    longest: int = 96
    padding: str = "max_length"
    batch_size: int = 16
    steps: int = 70
    lr: float = 3e-4
    seed: int = 5


class Questions(Dataset):
    """Words of a topic are drawn from its own part of the vocabulary more often than not."""

    def __init__(self, config: QuestionConfig):
        rng = random.Random(config.seed)
        part = (config.words - SPECIAL) // config.topics
        self.rows = []
        for _ in range(config.questions):
            topic = rng.randrange(config.topics)
            length = min(config.longest - 2, config.shortest + int(rng.expovariate(1 / 9)))
            words = [
                SPECIAL + topic * part + rng.randrange(part)
                if rng.random() < 0.3
                else rng.randrange(SPECIAL, config.words)
                for _ in range(length)
            ]
            self.rows.append({"input_ids": [CLS, *words, SEP], "label": topic})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class QuestionCollator:
    def __init__(self, padding: str, max_length: int):
        self.padding = padding
        self.max_length = max_length

    def __call__(self, rows):
        width = self.max_length if self.padding == "max_length" else max(len(row["input_ids"]) for row in rows)
        input_ids = torch.full((len(rows), width), PAD)
        attention_mask = torch.zeros((len(rows), width), dtype=torch.long)
        for number, row in enumerate(rows):
            size = len(row["input_ids"])
            input_ids[number, :size] = torch.tensor(row["input_ids"])
            attention_mask[number, :size] = 1
        labels = torch.tensor([row["label"] for row in rows])
        return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def build_model(config: QuestionConfig) -> BertForSequenceClassification:
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=config.words,
            hidden_size=128,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=384,
            max_position_embeddings=config.longest,
            num_labels=config.topics,
            pad_token_id=PAD,
        )
    )


def main() -> None:
    config = QuestionConfig()
    logging.set_verbosity_error()
    set_seed(config.seed)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=config.steps,
            per_device_train_batch_size=config.batch_size,
            learning_rate=config.lr,
            warmup_steps=10,
            weight_decay=0.01,
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            seed=config.seed,
        )
        trainer = Trainer(
            model=build_model(config),
            args=arguments,
            train_dataset=Questions(config),
            data_collator=QuestionCollator(config.padding, config.longest),
        )
        result = trainer.train()
    print(f"mean loss {result.training_loss:.3f}")


if __name__ == "__main__":
    main()

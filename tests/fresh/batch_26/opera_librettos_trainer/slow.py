"""Who sings this line? Roles told from lines of librettos by a small BERT with the Trainer of Transformers."""

import random
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

ROLES = ["soprano", "mezzo", "tenor", "baritone", "bass", "chorus"]
PAD, CLS, SEP = 0, 1, 2


@dataclass
class LibrettoConfig:
    lines: int = 1920
    words: int = 900
    max_length: int = 128
    hidden: int = 128
    layers: int = 2
    batch_size: int = 16
    epochs: int = 1
    seed: int = 9


class Vocabulary:
    """Words of all librettos by number; the first three are special."""

    def __init__(self, words: int) -> None:
        syllables = [a + b for a in "bcdfglmnprstvz" for b in "aeiou"]
        shuffler = random.Random(1)
        self.words = ["".join(shuffler.choices(syllables, k=3)) for _ in range(words)]
        self.numbers = {word: number + 3 for number, word in enumerate(self.words)}

    def encode(self, line: str, limit: int) -> list[int]:
        tokens = [self.numbers[word] for word in line.split()]
        return [CLS, *tokens[: limit - 2], SEP]

    def __len__(self) -> int:
        return len(self.words) + 3


def write_lines(config: LibrettoConfig, vocabulary: Vocabulary) -> list[tuple[str, int]]:
    writer = random.Random(config.seed)
    share = len(vocabulary.words) // len(ROLES)
    written = []
    for _ in range(config.lines):
        role = writer.randrange(len(ROLES))
        own = vocabulary.words[role * share : (role + 1) * share]
        length = min(8 + int(writer.expovariate(1 / 16)), 120)
        words = [writer.choice(own if writer.random() < 0.3 else vocabulary.words) for _ in range(length)]
        written.append((" ".join(words), role))
    return written


class Librettos(Dataset):
    def __init__(self, lines: list[tuple[str, int]], vocabulary: Vocabulary, max_length: int) -> None:
        self.rows = [(vocabulary.encode(line, max_length), role) for line, role in lines]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict:
        ids, role = self.rows[index]
        return {"input_ids": ids, "labels": role}


@dataclass
class PaddingCollator:
    max_length: int

    def __call__(self, rows: list[dict]) -> dict[str, torch.Tensor]:
        length = self.max_length
        ids = np.full((len(rows), length), PAD, dtype=np.int64)
        for place, row in enumerate(rows):
            ids[place, : len(row["input_ids"])] = row["input_ids"]
        input_ids = torch.from_numpy(ids)
        labels = torch.tensor([row["labels"] for row in rows])
        return {"input_ids": input_ids, "attention_mask": (input_ids != PAD).long(), "labels": labels}


def build_model(config: LibrettoConfig, vocabulary: Vocabulary) -> BertForSequenceClassification:
    bert = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=config.hidden,
        num_hidden_layers=config.layers,
        num_attention_heads=4,
        intermediate_size=4 * config.hidden,
        max_position_embeddings=config.max_length,
        pad_token_id=PAD,
        num_labels=len(ROLES),
    )
    return BertForSequenceClassification(bert)


def main(config: LibrettoConfig) -> None:
    set_seed(config.seed)
    vocabulary = Vocabulary(config.words)
    dataset = Librettos(write_lines(config, vocabulary), vocabulary, config.max_length)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=config.batch_size,
            num_train_epochs=config.epochs,
            learning_rate=5e-4,
            warmup_steps=20,
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            seed=config.seed,
        )
        trainer = Trainer(
            model=build_model(config, vocabulary),
            args=arguments,
            train_dataset=dataset,
            data_collator=PaddingCollator(config.max_length),
        )
        result = trainer.train()
    print(f"loss {result.training_loss:.3f}")


if __name__ == "__main__":
    main(LibrettoConfig())

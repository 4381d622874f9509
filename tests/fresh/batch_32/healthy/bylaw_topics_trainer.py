"""Files the bylaws of towns by topic: a small BERT with fused attention, batches of like lengths, the Trainer."""

import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed
from transformers.utils import logging

PAD, CLS, SEP, FIRST = 0, 1, 2, 3


@dataclass
class BylawConfig:
    topics: int = 12
    words: int = 4000
    bylaws: int = 1600
    longest: int = 96
    batch_size: int = 16
    steps: int = 100
    seed: int = 59


class Bylaws(Dataset):
    """Words are drawn and turned into tensors once, before training."""

    def __init__(self, config: BylawConfig):
        rng = np.random.default_rng(config.seed)
        part = (config.words - FIRST) // config.topics
        self.topics = rng.integers(0, config.topics, config.bylaws)
        lengths = rng.integers(10, config.longest - 1, config.bylaws)
        self.rows = []
        for topic, length in zip(self.topics, lengths, strict=True):
            own = FIRST + topic * part + rng.integers(0, part, length)
            words = np.where(rng.random(length) < 0.25, own, rng.integers(FIRST, config.words, length))
            self.rows.append(torch.from_numpy(np.concatenate([[CLS], words, [SEP]])))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": int(self.topics[index])}


class LikeLengths(Sampler):
    """Rows are shuffled, sorted by length inside of chunks, and the batches shuffled again."""

    def __init__(self, lengths, batch_size: int, seed: int, chunk: int = 50):
        self.lengths = torch.tensor(lengths)
        self.batch_size, self.chunk = batch_size, chunk * batch_size
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self):
        return len(self.lengths)

    def __iter__(self):
        order = torch.randperm(len(self.lengths), generator=self.generator)
        parts = [part[self.lengths[part].argsort()] for part in order.split(self.chunk)]
        batches = torch.cat(parts).split(self.batch_size)
        for number in torch.randperm(len(batches), generator=self.generator).tolist():
            yield from batches[number].tolist()


def collate(rows):
    input_ids = torch.nn.utils.rnn.pad_sequence([row["input_ids"] for row in rows], batch_first=True, padding_value=PAD)
    labels = torch.tensor([row["labels"] for row in rows])
    return {"input_ids": input_ids, "attention_mask": (input_ids != PAD).long(), "labels": labels}


class BylawTrainer(Trainer):
    def _get_train_sampler(self, train_dataset=None):
        lengths = [len(row) for row in self.train_dataset.rows]
        return LikeLengths(lengths, self.args.per_device_train_batch_size, self.args.seed)


def build_model(config: BylawConfig):
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=config.words,
            hidden_size=128,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=512,
            max_position_embeddings=config.longest,
            num_labels=config.topics,
            attn_implementation="sdpa",
        )
    )


def main() -> None:
    config = BylawConfig()
    logging.set_verbosity_error()
    set_seed(config.seed)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=config.steps,
            per_device_train_batch_size=config.batch_size,
            learning_rate=4e-4,
            warmup_steps=10,
            optim="adamw_torch_fused",
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            seed=config.seed,
        )
        trainer = BylawTrainer(
            model=build_model(config), args=arguments, train_dataset=Bylaws(config), data_collator=collate
        )
        result = trainer.train()
    print(f"mean loss {result.training_loss:.3f}")


if __name__ == "__main__":
    main()

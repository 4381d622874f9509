"""Stars of restaurant reviews with a small BERT from scratch and the Trainer of Transformers."""

import random
import tempfile
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

PAD, CLS, SEP = 0, 1, 2
PRAISE = ["crisp", "tender", "fragrant", "generous", "warm", "silky", "bright", "superb"]
BLAME = ["soggy", "cold", "bland", "stale", "greasy", "rude", "slow", "burnt"]
FILLER = [f"word{number}" for number in range(1_200)]


@dataclass
class Settings:
    reviews: int = 1_440
    words: tuple[int, int] = (28, 44)
    epochs: float = 1.0
    batch_size: int = 16
    learning_rate: float = 4e-4
    warmup: int = 10
    gradient_checkpointing: bool = False
    model: dict = field(
        default_factory=lambda: {
            "hidden_size": 128,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "intermediate_size": 512,
            "max_position_embeddings": 64,
        }
    )


class Vocabulary:
    def __init__(self, words):
        self.ids = {word: number for number, word in enumerate(words, start=3)}

    def __len__(self):
        return len(self.ids) + 3

    def encode(self, words):
        return [CLS, *(self.ids[word] for word in words), SEP]


def write_review(rng, low, high):
    stars = rng.randrange(5)
    words = rng.choices(FILLER, k=rng.randint(low, high))
    for place in rng.sample(range(len(words)), 8):
        words[place] = rng.choice(PRAISE if rng.random() < stars / 4 else BLAME)
    return words, stars


class ReviewDataset(Dataset):
    def __init__(self, settings, vocabulary, seed):
        rng = random.Random(seed)
        reviews = [write_review(rng, *settings.words) for _ in range(settings.reviews)]
        self.encoded = [torch.tensor(vocabulary.encode(words)) for words, _ in reviews]
        self.stars = [stars for _, stars in reviews]

    def __len__(self):
        return len(self.encoded)

    def __getitem__(self, index):
        return self.encoded[index], self.stars[index]


def collate(examples):
    ids, stars = zip(*examples, strict=True)
    ids = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=PAD)
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": torch.tensor(stars)}


def accuracy(prediction):
    return {"accuracy": float((np.argmax(prediction.predictions, axis=1) == prediction.label_ids).mean())}


def build_model(settings, vocabulary):
    config = BertConfig(vocab_size=len(vocabulary), num_labels=5, pad_token_id=PAD, **settings.model)
    return BertForSequenceClassification(config)


def main():
    settings = Settings()
    set_seed(5)
    vocabulary = Vocabulary(PRAISE + BLAME + FILLER)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=settings.epochs,
            per_device_train_batch_size=settings.batch_size,
            per_device_eval_batch_size=4 * settings.batch_size,
            learning_rate=settings.learning_rate,
            warmup_steps=settings.warmup,
            gradient_checkpointing=settings.gradient_checkpointing,
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            dataloader_drop_last=True,
        )
        trainer = Trainer(
            model=build_model(settings, vocabulary),
            args=arguments,
            train_dataset=ReviewDataset(settings, vocabulary, seed=1),
            data_collator=collate,
            compute_metrics=accuracy,
        )
        print(trainer.train().metrics)


if __name__ == "__main__":
    main()

"""Sort letters to a pension office by what they ask for, with BERT and the Trainer."""

import random
import tempfile
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

TOPICS = {
    "payout": "payment amount month bank transfer missing late".split(),
    "address": "moved street city house new postcode".split(),
    "widow": "husband wife death certificate claim survivor".split(),
    "contribution": "years employer gap record account statement".split(),
    "tax": "form deduction income notice assessment rate".split(),
}
COMMON = "dear sir madam please regarding my the a of and with your letter since when would ask for kindly".split()
PAD, CLS = 0, 1


@dataclass
class ModelSettings:
    hidden_size: int = 160
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    intermediate_size: int = 480
    max_length: int = 72


@dataclass
class RunSettings:
    letters: int = 1000
    batch_size: int = 12
    epochs: float = 2.0
    learning_rate: float = 4e-4
    warmup_steps: int = 20
    gradient_checkpointing: bool = False
    seed: int = 11


@dataclass
class WordTokenizer:
    vocabulary: dict = field(default_factory=dict)

    @classmethod
    def from_words(cls, words):
        return cls({word: place + 2 for place, word in enumerate(sorted(set(words)))})

    def __len__(self):
        return len(self.vocabulary) + 2

    def encode(self, text, length):
        ids = [CLS, *(self.vocabulary[word] for word in text.split()[: length - 1])]
        return ids + [PAD] * (length - len(ids))


def write_letter(topic, rng):
    words = [
        rng.choice(TOPICS[topic]) if rng.random() < 0.3 else rng.choice(COMMON) for _ in range(rng.randint(50, 71))
    ]
    if rng.random() < 0.15:
        words += rng.choices(TOPICS[rng.choice(list(TOPICS))], k=3)
    return " ".join(words)


class LetterDataset(Dataset):
    def __init__(self, letters, tokenizer, length):
        self.ids = torch.tensor([tokenizer.encode(text, length) for text, _ in letters])
        self.labels = torch.tensor([label for _, label in letters])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        ids = self.ids[index]
        return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": self.labels[index]}


def build_data(run, model):
    rng = random.Random(run.seed)
    names = list(TOPICS)
    letters = []
    for _ in range(run.letters):
        label = rng.randrange(len(names))
        letters.append((write_letter(names[label], rng), label))
    tokenizer = WordTokenizer.from_words(COMMON + [word for words in TOPICS.values() for word in words])
    held_out = run.letters // 10
    train = LetterDataset(letters[held_out:], tokenizer, model.max_length)
    return train, LetterDataset(letters[:held_out], tokenizer, model.max_length), tokenizer


def build_model(settings, tokenizer):
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden_size,
        num_hidden_layers=settings.num_hidden_layers,
        num_attention_heads=settings.num_attention_heads,
        intermediate_size=settings.intermediate_size,
        max_position_embeddings=settings.max_length,
        num_labels=len(TOPICS),
        pad_token_id=PAD,
    )
    return BertForSequenceClassification(config)


def accuracy(prediction):
    return {"accuracy": float(np.mean(prediction.predictions.argmax(-1) == prediction.label_ids))}


def main():
    run, model_settings = RunSettings(), ModelSettings()
    set_seed(run.seed)
    train, held_out, tokenizer = build_data(run, model_settings)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            per_device_train_batch_size=run.batch_size,
            per_device_eval_batch_size=60,
            num_train_epochs=run.epochs,
            learning_rate=run.learning_rate,
            warmup_steps=run.warmup_steps,
            gradient_checkpointing=run.gradient_checkpointing,
            logging_steps=25,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=run.seed,
        )
        trainer = Trainer(
            model=build_model(model_settings, tokenizer),
            args=arguments,
            train_dataset=train,
            eval_dataset=held_out,
            compute_metrics=accuracy,
        )
        trainer.train()
        print(trainer.evaluate())


if __name__ == "__main__":
    main()

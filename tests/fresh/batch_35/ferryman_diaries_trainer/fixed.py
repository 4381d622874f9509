"""Names of people, places and goods in the diaries of a ferryman: token classification with the Trainer."""

import random
import tempfile
from dataclasses import dataclass, field

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForTokenClassification,
    DataCollatorForTokenClassification,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

LABELS = ["O", "PERSON", "PLACE", "GOODS", "DAY"]
FIRST = "anna bertil carl dagny elsa folke greta hjalmar ivar jenny knut lovisa".split()
LAST = "berg dahl ek falk grip hjort lind mark norr sand ström vik".split()
PLACES = "millbank stonehythe eelpool willowford saltgate heronsea ashferry northquay".split()
GOODS = "barley timber herring tar wool bricks lambs cider salt hay".split()
DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
SENTENCES = (
    "on {day} i rowed {person} over to {place}",
    "{person} brought {goods} and {goods} for the market at {place}",
    "the wind stood from {place} and nobody wished to cross",
    "took {goods} for {person} who paid on {day}",
    "fog until noon then {person} and {person} with {goods}",
    "mended the rope and waited for {person} until {day}",
    "the water is high below {place} since {day}",
)


@dataclass
class Settings:
    entries: int = 1500
    held_out: int = 200
    max_length: int = 96
    padding: str = "longest"
    hidden_size: int = 96
    layers: int = 3
    heads: int = 4
    seed: int = 1884
    training: dict = field(
        default_factory=lambda: {
            "per_device_train_batch_size": 16,
            "per_device_eval_batch_size": 50,
            "max_steps": 110,
            "learning_rate": 1e-3,
            "warmup_steps": 10,
            "lr_scheduler_type": "linear",
            "logging_steps": 40,
        }
    )


def write_entry(rng: random.Random) -> tuple[list[str], list[str]]:
    """A few sentences with one label for each word; most entries are short, some take a whole page."""
    words, labels = [], []
    for _ in range(min(12, 1 + int(rng.expovariate(0.6)))):
        for word in rng.choice(SENTENCES).split():
            if word == "{person}":
                words += [rng.choice(FIRST), rng.choice(LAST)]
                labels += ["PERSON", "PERSON"]
            elif word.startswith("{"):
                choices, label = {
                    "{place}": (PLACES, "PLACE"),
                    "{goods}": (GOODS, "GOODS"),
                    "{day}": (DAYS, "DAY"),
                }[word]
                words.append(rng.choice(choices))
                labels.append(label)
            else:
                words.append(word)
                labels.append("O")
    return words, labels


def build_tokenizer(entries: list[tuple[list[str], list[str]]]) -> PreTrainedTokenizerFast:
    words = sorted({word for entry, _ in entries for word in entry})
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *words])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")


class Diaries(Dataset):
    def __init__(self, entries: list, tokenizer: PreTrainedTokenizerFast, max_length: int):
        encoded = tokenizer(
            [words for words, _ in entries], is_split_into_words=True, truncation=True, max_length=max_length
        )
        self.items = []
        for number, (_, labels) in enumerate(entries):
            ids = encoded["input_ids"][number]
            self.items.append(
                {
                    "input_ids": ids,
                    "attention_mask": encoded["attention_mask"][number],
                    "labels": [LABELS.index(label) for label in labels[: len(ids)]],
                }
            )

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict:
        return self.items[index]


def score(prediction) -> dict[str, float]:
    labels = prediction.label_ids
    predicted = prediction.predictions
    known = labels != -100
    named = known & (labels > 0)
    return {
        "accuracy": float(np.mean(predicted[known] == labels[known])),
        "recall_of_names": float(np.mean(predicted[named] == labels[named])),
    }


def main() -> None:
    settings = Settings()
    set_seed(settings.seed)
    rng = random.Random(settings.seed)
    entries = [write_entry(rng) for _ in range(settings.entries + settings.held_out)]
    tokenizer = build_tokenizer(entries)
    train_set = Diaries(entries[: settings.entries], tokenizer, settings.max_length)
    test_set = Diaries(entries[settings.entries :], tokenizer, settings.max_length)
    model = BertForTokenClassification(
        BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=settings.hidden_size,
            num_hidden_layers=settings.layers,
            num_attention_heads=settings.heads,
            intermediate_size=4 * settings.hidden_size,
            max_position_embeddings=settings.max_length,
            num_labels=len(LABELS),
        )
    )
    collator = DataCollatorForTokenClassification(tokenizer, padding=settings.padding, max_length=settings.max_length)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            seed=settings.seed,
            **settings.training,
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            data_collator=collator,
            train_dataset=train_set,
            eval_dataset=test_set,
            compute_metrics=score,
            preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
        )
        trainer.train()
        scores = trainer.evaluate()
    print({name: round(value, 3) for name, value in scores.items() if name.startswith("eval_")})


if __name__ == "__main__":
    main()

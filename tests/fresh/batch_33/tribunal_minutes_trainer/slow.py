"""Outcome of a hearing from its minutes: BERT from scratch under the Trainer of Transformers."""

import random
import tempfile
from dataclasses import dataclass, field

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

OUTCOMES = ("dismissed", "granted", "adjourned", "settled")
TOPICS = {
    "dismissed": "late evidence missing grounds rejected appeal costs",
    "granted": "claim upheld award damages order proven",
    "adjourned": "postponed witness absent date next session",
    "settled": "agreement parties terms mutual payment closed",
}
COMMON = "the tribunal heard counsel for both sides and noted that of in on by with was had court clerk minutes".split()


@dataclass
class ModelSettings:
    hidden_size: int = 120
    layers: int = 4
    heads: int = 6
    intermediate_size: int = 480
    max_length: int = 96


@dataclass
class RunSettings:
    examples: int = 1600
    batch_size: int = 8
    steps: int = 45
    learning_rate: float = 3e-4
    warmup_steps: int = 10
    weight_decay: float = 0.01
    gradient_checkpointing: bool = True
    seed: int = 8
    model: ModelSettings = field(default_factory=ModelSettings)


class WordTokenizer:
    def __init__(self) -> None:
        words = sorted({*COMMON, *(word for line in TOPICS.values() for word in line.split())})
        self.ids = {word: number for number, word in enumerate(words, start=3)}
        self.pad, self.cls, self.unknown = 0, 1, 2

    def __len__(self) -> int:
        return len(self.ids) + 3

    def encode(self, text: str, max_length: int) -> list[int]:
        ids = [self.ids.get(word, self.unknown) for word in text.split()]
        return [self.cls, *ids][:max_length]


def write_minutes(rng: random.Random, outcome: str, words: int) -> str:
    topic = TOPICS[outcome].split()
    return " ".join(rng.choice(topic) if rng.random() < 0.2 else rng.choice(COMMON) for _ in range(words))


class MinutesDataset(Dataset):
    def __init__(self, settings: RunSettings, tokenizer: WordTokenizer):
        rng = random.Random(settings.seed)
        self.examples = []
        for number in range(settings.examples):
            label = number % len(OUTCOMES)
            text = write_minutes(rng, OUTCOMES[label], rng.randint(70, 110))
            ids = tokenizer.encode(text, settings.model.max_length)
            self.examples.append({"input_ids": torch.tensor(ids), "labels": label})

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> dict:
        return self.examples[index]


def collate(examples: list[dict]) -> dict[str, torch.Tensor]:
    ids = torch.nn.utils.rnn.pad_sequence([example["input_ids"] for example in examples], batch_first=True)
    labels = torch.tensor([example["labels"] for example in examples])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}


def build_model(settings: ModelSettings, vocabulary: int) -> BertForSequenceClassification:
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=settings.hidden_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=settings.intermediate_size,
        max_position_embeddings=settings.max_length,
        num_labels=len(OUTCOMES),
    )
    return BertForSequenceClassification(config)


def main() -> None:
    settings = RunSettings()
    set_seed(settings.seed)
    tokenizer = WordTokenizer()
    dataset = MinutesDataset(settings, tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=settings.batch_size,
            max_steps=settings.steps,
            learning_rate=settings.learning_rate,
            warmup_steps=settings.warmup_steps,
            weight_decay=settings.weight_decay,
            gradient_checkpointing=settings.gradient_checkpointing,
            logging_steps=15,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            seed=settings.seed,
        )
        trainer = Trainer(
            model=build_model(settings.model, len(tokenizer)),
            args=arguments,
            train_dataset=dataset,
            data_collator=collate,
        )
        result = trainer.train()
    print(f"loss after {result.global_step} steps: {result.training_loss:.3f}")


if __name__ == "__main__":
    main()

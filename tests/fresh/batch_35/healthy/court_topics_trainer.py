"""Topics of short court notes: a small BERT under the Trainer, batches of similar lengths, padded to the longest."""

import random
import tempfile
from dataclasses import dataclass

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

TOPICS = {
    "tenancy": "rent lease landlord deposit repairs notice".split(),
    "traffic": "speed licence lane signal collision parking".split(),
    "inheritance": "will heir estate executor trust share".split(),
    "labour": "wage dismissal contract overtime union leave".split(),
    "trade": "invoice delivery goods defect refund seller".split(),
}
COMMON = "the court heard that party claims and asks for a date with reference to prior order of judge on file".split()


@dataclass
class Settings:
    notes: int = 2400
    held_out: int = 300
    shortest: int = 12
    longest: int = 72
    hidden_size: int = 128
    layers: int = 3
    heads: int = 4
    batch_size: int = 24
    steps: int = 150
    learning_rate: float = 5e-4
    seed: int = 88


def write_note(rng: random.Random, topic: str, length: int) -> list[str]:
    return [rng.choice(TOPICS[topic]) if rng.random() < 0.2 else rng.choice(COMMON) for _ in range(length)]


class Notes(Dataset):
    """Encoded once; the length is kept for the sampler that groups notes."""

    def __init__(self, notes: list[tuple[list[str], int]], vocabulary: dict[str, int]):
        self.items = [
            {
                "input_ids": torch.tensor([1, *(vocabulary[word] for word in words)]),
                "labels": topic,
                "length": len(words),
            }
            for words, topic in notes
        ]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict:
        return self.items[index]


def collate(items: list[dict]) -> dict[str, torch.Tensor]:
    ids = torch.nn.utils.rnn.pad_sequence([item["input_ids"] for item in items], batch_first=True)
    return {
        "input_ids": ids,
        "attention_mask": (ids != 0).long(),
        "labels": torch.tensor([item["labels"] for item in items]),
    }


def accuracy(prediction) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions == prediction.label_ids).mean())}


def main() -> None:
    settings = Settings()
    set_seed(settings.seed)
    rng = random.Random(settings.seed)
    names = list(TOPICS)
    notes = []
    for number in range(settings.notes + settings.held_out):
        topic = number % len(names)
        notes.append((write_note(rng, names[topic], rng.randint(settings.shortest, settings.longest)), topic))
    words = sorted({word for note, _ in notes for word in note})
    vocabulary = {word: number for number, word in enumerate(words, start=2)}
    train_set = Notes(notes[: settings.notes], vocabulary)
    test_set = Notes(notes[settings.notes :], vocabulary)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(vocabulary) + 2,
            hidden_size=settings.hidden_size,
            num_hidden_layers=settings.layers,
            num_attention_heads=settings.heads,
            intermediate_size=4 * settings.hidden_size,
            max_position_embeddings=settings.longest + 1,
            num_labels=len(names),
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="sdpa",
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=settings.batch_size,
            per_device_eval_batch_size=100,
            max_steps=settings.steps,
            learning_rate=settings.learning_rate,
            warmup_steps=15,
            optim="adamw_torch_fused",
            train_sampling_strategy="group_by_length",
            length_column_name="length",
            remove_unused_columns=False,
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            seed=settings.seed,
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            data_collator=collate,
            train_dataset=train_set,
            eval_dataset=test_set,
            compute_metrics=accuracy,
            preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
        )
        trainer.train()
        scores = trainer.evaluate()
    print(f"accuracy {scores['eval_accuracy']:.3f}, loss {scores['eval_loss']:.4f}")


if __name__ == "__main__":
    main()

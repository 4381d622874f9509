"""What an office memo asks for: DistilBERT from scratch under the Trainer of Transformers."""

import argparse
import random
import tempfile

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

INTENTS = {
    "order": "toner paper chairs quantity supplier invoice deliver budget",
    "meeting": "room agenda invite calendar attend noon projector slides",
    "leave": "vacation absent holiday cover return days approve sick",
    "repair": "broken leaking lift heating lamp technician urgent noise",
    "access": "password badge account locked door permission login reset",
}
FILLER = "please dear all we need the a for of to by on our team could you thanks regards kindly this week".split()


def write_memos(count: int, seed: int) -> tuple[list[str], list[int]]:
    rng = random.Random(seed)
    names = list(INTENTS)
    texts, labels = [], []
    for _ in range(count):
        label = rng.randrange(len(names))
        words = INTENTS[names[label]].split()
        length = rng.randint(24, 40)
        texts.append(" ".join(rng.choice(words) if rng.random() < 0.25 else rng.choice(FILLER) for _ in range(length)))
        labels.append(label)
    return texts, labels


def encode(texts: list[str]) -> tuple[list[torch.Tensor], int]:
    """Every memo is turned into numbers once, before training."""
    vocabulary = {word: i for i, word in enumerate(sorted({w for text in texts for w in text.split()}), start=2)}
    return [torch.tensor([1, *(vocabulary[word] for word in text.split())]) for text in texts], len(vocabulary) + 2


class Memos(torch.utils.data.Dataset):
    def __init__(self, ids: list[torch.Tensor], labels: list[int]):
        self.ids, self.labels = ids, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict:
        return {"input_ids": self.ids[index], "labels": self.labels[index]}


def collate(memos: list[dict]) -> dict[str, torch.Tensor]:
    ids = pad_sequence([memo["input_ids"] for memo in memos], batch_first=True)
    return {
        "input_ids": ids,
        "attention_mask": (ids != 0).long(),
        "labels": torch.tensor([memo["labels"] for memo in memos]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memos", type=int, default=2560)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=2)
    args = parser.parse_args()

    set_seed(args.seed)
    texts, labels = write_memos(args.memos, args.seed)
    ids, vocabulary = encode(texts)
    config = DistilBertConfig(
        vocab_size=vocabulary,
        dim=128,
        n_layers=3,
        n_heads=4,
        hidden_dim=512,
        max_position_embeddings=64,
        num_labels=len(INTENTS),
        attn_implementation="sdpa",
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=DistilBertForSequenceClassification(config),
            args=TrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=args.batch_size,
                num_train_epochs=args.epochs,
                learning_rate=args.lr,
                warmup_steps=10,
                optim="adamw_torch_fused",
                logging_steps=40,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                use_cpu=True,
                dataloader_drop_last=True,
                seed=args.seed,
            ),
            train_dataset=Memos(ids, labels),
            data_collator=collate,
        )
        trainer.train()


if __name__ == "__main__":
    main()

"""Clauses of ship charters sorted by subject with a small DistilBERT and the Trainer, grouped by length."""

import tempfile

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainingArguments, set_seed

SUBJECTS = 8
WORDS = 1500


class Clauses(Dataset):
    """Token numbers, drawn once and kept as tensors, in an order in which neighbours are about as long."""

    def __init__(self, count: int, batch_size: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(16, 72, (count,), generator=generator)
        blocks = [block[block.argsort()] for block in lengths.split(batch_size * 8)]
        self.labels = torch.randint(0, SUBJECTS, (count,), generator=generator)
        self.tokens = []
        for length, label in zip(torch.cat(blocks).tolist(), self.labels.tolist()):
            tokens = torch.randint(2, WORDS, (length,), generator=generator)
            tokens[::4] = 2 + label * 20 + tokens[::4] % 20
            self.tokens.append(tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.labels[index]}


def collate(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    input_ids = pad_sequence([row["input_ids"] for row in rows], batch_first=True)
    labels = torch.stack([row["labels"] for row in rows])
    return {"input_ids": input_ids, "attention_mask": (input_ids > 0).long(), "labels": labels}


class InOrder(Trainer):
    """Clauses are independent draws already, so that their order may stay."""

    def _get_train_sampler(self, *_: object) -> torch.utils.data.Sampler:
        return torch.utils.data.SequentialSampler(self.train_dataset)


def main(batch_size: int = 24, count: int = 3600) -> None:
    set_seed(12)
    config = DistilBertConfig(
        vocab_size=WORDS,
        dim=128,
        n_layers=2,
        n_heads=4,
        hidden_dim=384,
        max_position_embeddings=80,
        num_labels=SUBJECTS,
        pad_token_id=0,
        attn_implementation="sdpa",
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=batch_size,
            num_train_epochs=1,
            learning_rate=5e-4,
            optim="adamw_torch_fused",
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = InOrder(
            model=DistilBertForSequenceClassification(config),
            args=arguments,
            train_dataset=Clauses(count, batch_size, seed=12),
            data_collator=collate,
        )
        print(f"loss {trainer.train().training_loss:.3f}")


if __name__ == "__main__":
    main()

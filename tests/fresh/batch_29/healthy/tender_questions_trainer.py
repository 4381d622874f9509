"""Questions about public tenders sorted by department: DistilBERT and Transformers' Trainer, grouped by length."""

import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler
from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainingArguments
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()


class Questions(Dataset):
    """Token ids of all questions in one array, made once."""

    def __init__(self, count: int, vocabulary: int, departments: int, seed: int):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(12, 72, size=count)
        self.departments = rng.integers(departments, size=count)
        typical = rng.integers(5, vocabulary, size=(departments, 50))
        self.ids = []
        for length, department in zip(lengths, self.departments):
            words = rng.integers(5, vocabulary, size=length)
            own = rng.random(length) < 0.3
            words[own] = typical[department, rng.integers(50, size=own.sum())]
            self.ids.append(torch.from_numpy(words))
        self.lengths = lengths

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"ids": self.ids[index], "label": int(self.departments[index])}


class SimilarLengths(Sampler):
    """Shuffles, sorts stretches by length and keeps their batches together."""

    def __init__(self, lengths, batch: int, seed: int):
        self.lengths, self.batch = np.asarray(lengths), batch
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.lengths)

    def __iter__(self):
        order = self.rng.permutation(len(self.lengths))
        stretch = self.batch * 20
        parts = [order[start : start + stretch] for start in range(0, len(order), stretch)]
        ordered = np.concatenate([part[np.argsort(self.lengths[part])] for part in parts])
        batches = [ordered[start : start + self.batch] for start in range(0, len(ordered), self.batch)]
        self.rng.shuffle(batches[:-1])
        return iter(np.concatenate(batches).tolist())


def collate(rows):
    ids = torch.nn.utils.rnn.pad_sequence([row["ids"] for row in rows], batch_first=True)
    labels = torch.tensor([row["label"] for row in rows])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}


class GroupedTrainer(Trainer):
    def _get_train_sampler(self, *args, **kwargs):
        return SimilarLengths(self.train_dataset.lengths, self.args.per_device_train_batch_size, self.args.seed)


def main(vocabulary: int = 4000, departments: int = 9, seed: int = 31):
    torch.manual_seed(seed)
    config = DistilBertConfig(
        vocab_size=vocabulary,
        dim=128,
        hidden_dim=512,
        n_layers=3,
        n_heads=4,
        max_position_embeddings=72,
        num_labels=departments,
        attn_implementation="sdpa",
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=32,
            num_train_epochs=2,
            learning_rate=5e-4,
            optim="adamw_torch_fused",
            logging_steps=40,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            remove_unused_columns=False,
            seed=seed,
        )
        trainer = GroupedTrainer(
            model=DistilBertForSequenceClassification(config),
            args=arguments,
            train_dataset=Questions(2560, vocabulary, departments, seed),
            data_collator=collate,
        )
        result = trainer.train()
    print(f"{result.global_step} steps, loss {result.training_loss:.4f}")


if __name__ == "__main__":
    main()

"""Route support tickets to departments with a small DistilBERT."""

import random
import tempfile

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.utils.data import Dataset
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

DEPARTMENTS = ["billing", "network", "hardware", "accounts"]
MAX_LENGTH = 64


def write_tickets(count, seed):
    rng = random.Random(seed)
    stock = ["".join(rng.choices("abcdefghiklmnoprstuvw", k=rng.randint(3, 11))) for _ in range(6000)]
    tickets = []
    for _ in range(count):
        department = rng.randrange(len(DEPARTMENTS))
        words = rng.choices(stock, k=rng.randint(300, 700))
        words[rng.randrange(20)] = DEPARTMENTS[department]
        tickets.append({"text": " ".join(words), "label": department})
    return tickets


def train_tokenizer(texts):
    core = Tokenizer(models.BPE(unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=2000, special_tokens=["[PAD]", "[UNK]"]))
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]")


class TicketDataset(Dataset):
    def __init__(self, tickets):
        self.tickets = tickets

    def __len__(self):
        return len(self.tickets)

    def __getitem__(self, index):
        return self.tickets[index]


class TicketCollator:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, tickets):
        encoded = self.tokenizer.pad([{"input_ids": ticket["ids"]} for ticket in tickets], return_tensors="pt")
        batch = {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"]}
        batch["labels"] = torch.tensor([ticket["label"] for ticket in tickets])
        return batch


def main():
    set_seed(3)
    tickets = write_tickets(800, seed=3)
    tokenizer = train_tokenizer(ticket["text"] for ticket in tickets[:100])
    for ticket in tickets:
        ticket["ids"] = tokenizer(ticket["text"], truncation=True, max_length=MAX_LENGTH)["input_ids"]
    config = DistilBertConfig(
        vocab_size=len(tokenizer),
        dim=128,
        n_layers=2,
        n_heads=4,
        hidden_dim=256,
        max_position_embeddings=MAX_LENGTH,
        num_labels=len(DEPARTMENTS),
    )
    with tempfile.TemporaryDirectory() as output_dir:
        args = TrainingArguments(
            output_dir=output_dir,
            per_device_train_batch_size=16,
            num_train_epochs=4,
            learning_rate=3e-4,
            logging_steps=50,
            save_strategy="no",
            remove_unused_columns=False,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model=DistilBertForSequenceClassification(config),
            args=args,
            train_dataset=TicketDataset(tickets),
            data_collator=TicketCollator(tokenizer),
        )
        trainer.train()


if __name__ == "__main__":
    main()

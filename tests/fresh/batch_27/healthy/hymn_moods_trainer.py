"""Moods of hymns with a small DistilBERT and the Trainer of Transformers; batches are padded to their longest."""

import tempfile

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainingArguments, set_seed

WORDS = 1_500
MOODS = 4


class Hymns(Dataset):
    """Encoded once; longer and shorter hymns are kept apart by the sampler."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(24, 57, (count,), generator=generator)
        self.tokens = [torch.randint(1, WORDS, (length,), generator=generator) for length in lengths.tolist()]
        self.moods = [int(tokens.sum() // 7) % MOODS for tokens in self.tokens]

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.moods[index], "length": len(self.tokens[index])}


def collate(hymns):
    ids = pad_sequence([hymn["input_ids"] for hymn in hymns], batch_first=True)
    labels = torch.tensor([hymn["labels"] for hymn in hymns])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}


def build(width=128, layers=3):
    config = DistilBertConfig(
        vocab_size=WORDS,
        dim=width,
        n_layers=layers,
        n_heads=4,
        hidden_dim=4 * width,
        max_position_embeddings=64,
        num_labels=MOODS,
        pad_token_id=0,
        attn_implementation="sdpa",
    )
    return DistilBertForSequenceClassification(config)


def main():
    set_seed(9)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=140,
            per_device_train_batch_size=16,
            learning_rate=3e-4,
            optim="adamw_torch_fused",
            train_sampling_strategy="group_by_length",
            length_column_name="length",
            remove_unused_columns=False,
            logging_steps=70,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(model=build(), args=arguments, train_dataset=Hymns(2_400, 3), data_collator=collate)
        print(trainer.train().training_loss)


if __name__ == "__main__":
    main()

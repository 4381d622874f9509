"""Classify reviews with a small BERT: tokenised once, padded to the batch's longest, batches of similar length."""

import random
import tempfile

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)


def write_reviews(words, size, seed):
    rng = random.Random(seed)
    reviews = []
    for _ in range(size):
        label = rng.randrange(2)
        mood = words[:50] if label else words[50:100]
        length = rng.choice((8, 12, 20, 40, 80))
        reviews.append((" ".join(rng.choices(words[100:], k=length - 4) + rng.choices(mood, k=4)), label))
    return reviews


class ReviewDataset(Dataset):
    def __init__(self, tokenizer, reviews):
        encoded = tokenizer([text for text, _ in reviews], truncation=True, max_length=96)["input_ids"]
        self.rows = [
            {"input_ids": ids, "labels": label, "length": len(ids)}
            for ids, (_, label) in zip(encoded, reviews, strict=True)
        ]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def accuracy(prediction):
    return {"accuracy": float((np.argmax(prediction.predictions, -1) == prediction.label_ids).mean())}


def main():
    set_seed(0)
    words = [f"w{i}" for i in range(3000)]
    vocab = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *words])}
    core = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]")
    config = BertConfig(
        vocab_size=len(vocab),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=96,
        num_labels=2,
    )
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            num_train_epochs=2,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=64,
            train_sampling_strategy="group_by_length",
            length_column_name="length",
            learning_rate=5e-4,
            logging_steps=50,
            eval_strategy="epoch",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model=BertForSequenceClassification(config),
            args=args,
            train_dataset=ReviewDataset(tokenizer, write_reviews(words, 3200, 1)),
            eval_dataset=ReviewDataset(tokenizer, write_reviews(words, 512, 2)),
            data_collator=DataCollatorWithPadding(tokenizer),
            compute_metrics=accuracy,
        )
        trainer.train()


if __name__ == "__main__":
    main()

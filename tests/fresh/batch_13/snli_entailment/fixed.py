"""Fine-tune a small BERT on premise and hypothesis pairs."""

import random
import tempfile

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors
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

MAX_LENGTH = 128
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def make_tokenizer(words):
    vocab = {word: i for i, word in enumerate(SPECIAL + words)}
    core = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


class EntailmentDataset(Dataset):
    def __init__(self, tokenizer, words, size, seed):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(size):
            premise = rng.choices(words, k=rng.randint(6, 24))
            label = rng.randrange(3)
            hypothesis = rng.sample(premise, 4) if label == 0 else rng.choices(words, k=rng.randint(3, 10))
            row = dict(tokenizer(" ".join(premise), " ".join(hypothesis), truncation=True, max_length=MAX_LENGTH))
            row["label"] = label
            self.rows.append(row)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def compute_metrics(prediction):
    guesses = np.argmax(prediction.predictions, axis=-1)
    return {"accuracy": float((guesses == prediction.label_ids).mean())}


def main():
    set_seed(42)
    words = [f"word{i}" for i in range(2000)]
    tokenizer = make_tokenizer(words)
    train = EntailmentDataset(tokenizer, words, 2400, seed=1)
    held_out = EntailmentDataset(tokenizer, words, 160, seed=2)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=MAX_LENGTH,
        num_labels=3,
    )
    model = BertForSequenceClassification(config)
    collator = DataCollatorWithPadding(tokenizer, padding="longest")
    with tempfile.TemporaryDirectory() as output_dir:
        args = TrainingArguments(
            output_dir=output_dir,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=32,
            num_train_epochs=1,
            learning_rate=3e-4,
            logging_steps=50,
            eval_strategy="epoch",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model=model,
            args=args,
            train_dataset=train,
            eval_dataset=held_out,
            data_collator=collator,
            compute_metrics=compute_metrics,
        )
        trainer.train()


if __name__ == "__main__":
    main()

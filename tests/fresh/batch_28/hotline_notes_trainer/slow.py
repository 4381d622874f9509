"""Route notes of a tenants' hotline to departments: a small BERT from scratch and the Trainer of Transformers."""

import random
import tempfile
from dataclasses import dataclass, field

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    HfArgumentParser,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

DEPARTMENTS = ["heating", "plumbing", "noise", "rent", "keys", "lift"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


@dataclass
class DataArguments:
    notes: int = field(default=2000)
    words: int = field(default=1800, metadata={"help": "size of the made-up vocabulary"})
    max_length: int = field(default=128)
    padding: str = field(default="max_length", metadata={"help": "how the collator pads a batch"})


@dataclass
class ModelArguments:
    hidden_size: int = field(default=96)
    layers: int = field(default=3)
    heads: int = field(default=4)


def make_vocabulary(words):
    rng = random.Random(0)
    syllables = ["ka", "ro", "mi", "te", "lu", "sa", "ne", "po", "vi", "du", "ge", "ho"]
    made = set()
    while len(made) < words:
        made.add("".join(rng.choice(syllables) for _ in range(rng.randint(2, 5))))
    return sorted(made)


def make_tokenizer(vocabulary):
    ids = {token: number for number, token in enumerate(SPECIAL + vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


def write_notes(count, vocabulary, seed):
    """Most calls are short; a few tenants have a lot to say."""
    rng = random.Random(seed)
    notes, labels = [], []
    for _ in range(count):
        label = rng.randrange(len(DEPARTMENTS))
        length = min(110, max(6, int(rng.lognormvariate(3.2, 0.45))))
        topical = vocabulary[label * 40 : label * 40 + 40]
        notes.append(" ".join(rng.choice(topical if rng.random() < 0.2 else vocabulary) for _ in range(length)))
        labels.append(label)
    return notes, labels


class NotesDataset(Dataset):
    def __init__(self, notes, labels, tokenizer, max_length):
        self.encoded = tokenizer(notes, truncation=True, max_length=max_length)["input_ids"]
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        ids = self.encoded[index]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": self.labels[index]}


def build_model(args, vocab_size, max_length):
    config = BertConfig(
        vocab_size=vocab_size,
        hidden_size=args.hidden_size,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        intermediate_size=4 * args.hidden_size,
        max_position_embeddings=max_length,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=len(DEPARTMENTS),
        pad_token_id=0,
    )
    return BertForSequenceClassification(config)


def main():
    data_args, model_args = HfArgumentParser((DataArguments, ModelArguments)).parse_args_into_dataclasses()
    set_seed(28)
    vocabulary = make_vocabulary(data_args.words)
    tokenizer = make_tokenizer(vocabulary)
    notes, labels = write_notes(data_args.notes, vocabulary, seed=1)
    dataset = NotesDataset(notes, labels, tokenizer, data_args.max_length)
    collator = DataCollatorWithPadding(tokenizer, padding=data_args.padding, max_length=data_args.max_length)
    with tempfile.TemporaryDirectory() as folder:
        training = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=16,
            num_train_epochs=1,
            learning_rate=5e-4,
            warmup_steps=20,
            logging_steps=50,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=build_model(model_args, len(tokenizer), data_args.max_length),
            args=training,
            train_dataset=dataset,
            data_collator=collator,
        )
        trainer.train()


if __name__ == "__main__":
    main()

"""A GPT of amino acids for families of enzymes, trained from nothing with the Trainer of Transformers."""

import argparse
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"


class AminoTokenizer:
    """One token for each amino acid, after those for padding, start and end."""

    pad, start, end = 0, 1, 2

    def __init__(self):
        self.numbers = {letter: 3 + place for place, letter in enumerate(AMINO_ACIDS)}

    def __len__(self):
        return 3 + len(self.numbers)

    def encode(self, sequence):
        return [self.start, *(self.numbers[letter] for letter in sequence), self.end]


def make_families(families, members, length, seed):
    """Members of a family are its ancestor with a few mutations."""
    generator = torch.Generator().manual_seed(seed)
    ancestors = torch.randint(0, 20, (families, length), generator=generator)
    letters = ancestors.repeat_interleave(members, 0)
    mutated = torch.rand(letters.shape, generator=generator) < 0.1
    letters = torch.where(mutated, torch.randint(0, 20, letters.shape, generator=generator), letters)
    lengths = torch.randint(length - 16, length + 1, (len(letters),), generator=generator)
    return ["".join(AMINO_ACIDS[i] for i in row[:n]) for row, n in zip(letters.tolist(), lengths.tolist())]


class Enzymes(Dataset):
    """All sequences are encoded when the data set is made."""

    def __init__(self, sequences, tokenizer):
        self.encoded = [torch.tensor(tokenizer.encode(sequence)) for sequence in sequences]

    def __len__(self):
        return len(self.encoded)

    def __getitem__(self, index):
        return {"input_ids": self.encoded[index]}


class Collator:
    """Pads a batch to its longest sequence and leaves padding out of the loss."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, samples):
        rows = [sample["input_ids"] for sample in samples]
        tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.tokenizer.pad)
        real = tokens != self.tokenizer.pad
        return {
            "input_ids": tokens,
            "attention_mask": real.long(),
            "labels": tokens.masked_fill(~real, -100),
        }


def build_model(args, tokenizer):
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=args.length + 2,
        n_embd=args.width,
        n_layer=args.layers,
        n_head=4,
        bos_token_id=tokenizer.start,
        eos_token_id=tokenizer.end,
        pad_token_id=tokenizer.pad,
        use_cache=False,
    )
    return GPT2LMHeadModel(config)


def training_arguments(args, folder):
    return TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=args.batch_size,
        per_device_eval_batch_size=16,
        max_steps=args.steps,
        learning_rate=args.lr,
        warmup_steps=10,
        lr_scheduler_type="cosine",
        weight_decay=0.01,
        optim="adamw_torch_fused",
        logging_steps=20,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=args.seed,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--families", type=int, default=20)
    parser.add_argument("--members", type=int, default=40)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=110)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=29)
    args = parser.parse_args()
    set_seed(args.seed)
    tokenizer = AminoTokenizer()
    sequences = make_families(args.families, args.members, args.length, args.seed)
    held_out = sequences[:: args.members]
    train_set, test_set = Enzymes(sequences, tokenizer), Enzymes(held_out, tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=build_model(args, tokenizer),
            args=training_arguments(args, folder),
            train_dataset=train_set,
            eval_dataset=test_set,
            data_collator=Collator(tokenizer),
        )
        trainer.train()
        print({"eval_loss": round(trainer.evaluate()["eval_loss"], 4)})


if __name__ == "__main__":
    main()

"""A small GPT-2 that writes school menus: texts are encoded once, packed into blocks and trained by the Trainer."""

import random
import tempfile
from dataclasses import dataclass, field

import torch
from torch.utils.data import Dataset
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)

STARTERS = ["lentil soup", "green salad", "carrot sticks", "tomato soup", "cucumber yoghurt"]
MAINS = ["pasta with peas", "fish and potatoes", "rice with beans", "vegetable curry", "noodle bake", "pancakes"]
DESSERTS = ["apple slices", "vanilla quark", "banana bread", "plum compote", "rice pudding"]
WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday"]
ALPHABET = " abcdefghijklmnopqrstuvwxyz:,;.\n"


@dataclass
class MenuArguments:
    weeks: int = field(default=700, metadata={"help": "weeks of menus to write"})
    block: int = field(default=128, metadata={"help": "characters of one training block"})
    width: int = field(default=128)
    layers: int = field(default=3)
    heads: int = field(default=4)


def write_menus(weeks, seed):
    rng = random.Random(seed)
    lines = []
    for _ in range(weeks):
        for day in WEEKDAYS:
            courses = [rng.choice(course) for course in (STARTERS, MAINS, DESSERTS)]
            lines.append(f"{day}: {', '.join(courses)}.")
    return "\n".join(lines)


class PackedBlocks(Dataset):
    """The whole text as one row of ids, cut into blocks of equal length: no padding."""

    def __init__(self, text, block):
        number = {letter: index for index, letter in enumerate(ALPHABET)}
        ids = torch.tensor([number[letter] for letter in text])
        self.blocks = ids[: len(ids) // block * block].view(-1, block)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, index):
        return self.blocks[index]


def stack_blocks(blocks):
    ids = torch.stack(blocks)
    return {"input_ids": ids, "labels": ids}


def build_model(arguments):
    config = GPT2Config(
        vocab_size=len(ALPHABET),
        n_positions=arguments.block,
        n_embd=arguments.width,
        n_layer=arguments.layers,
        n_head=arguments.heads,
        attn_pdrop=0.0,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")


def main():
    (arguments,) = HfArgumentParser(MenuArguments).parse_args_into_dataclasses()
    set_seed(51)
    train = PackedBlocks(write_menus(arguments.weeks, seed=51), arguments.block)
    test = PackedBlocks(write_menus(40, seed=52), arguments.block)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=build_model(arguments),
            args=TrainingArguments(
                output_dir=folder,
                max_steps=120,
                per_device_train_batch_size=16,
                per_device_eval_batch_size=32,
                learning_rate=1e-3,
                lr_scheduler_type="cosine",
                warmup_steps=10,
                optim="adamw_torch_fused",
                logging_steps=60,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
                dataloader_drop_last=True,
                seed=51,
            ),
            train_dataset=train,
            eval_dataset=test,
            data_collator=stack_blocks,
        )
        trainer.train()
        print(trainer.evaluate())


if __name__ == "__main__":
    main()

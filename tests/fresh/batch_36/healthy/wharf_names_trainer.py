"""A small GPT on lists of cargo with the Trainer: texts are packed into blocks of one length when they are read."""

import random
import tempfile
from dataclasses import dataclass

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, default_data_collator, set_seed

SHIPS = "petrel curlew avocet fulmar gannet sandpiper plover dunlin".split()
GOODS = "cork tin indigo pepper flax copper oak salt sherry wax rope coal".split()
PORTS = "lisbon cork bergen riga leith porto rouen antwerp".split()


@dataclass
class Settings:
    lists: int = 9000
    block: int = 128
    hidden: int = 128
    layers: int = 3
    heads: int = 4
    batch_size: int = 16
    steps: int = 110
    learning_rate: float = 2e-3
    seed: int = 1702


def write_list(rng: random.Random) -> str:
    cargo = ", ".join(f"{rng.randint(2, 60)} of {good}" for good in rng.sample(GOODS, rng.randint(1, 4)))
    return f"the {rng.choice(SHIPS)} from {rng.choice(PORTS)} for {rng.choice(PORTS)}: {cargo}\n"


class Blocks(Dataset):
    """The characters of all lists in a row, cut into blocks that need no padding."""

    def __init__(self, text: str, letters: dict[str, int], block: int):
        ids = torch.tensor([letters[letter] for letter in text])
        self.blocks = ids[: len(ids) // block * block].view(-1, block)

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        block = self.blocks[index]
        return {"input_ids": block, "labels": block}


def main() -> None:
    settings = Settings()
    set_seed(settings.seed)
    rng = random.Random(settings.seed)
    lists = [write_list(rng) for _ in range(settings.lists)]
    letters = {letter: number for number, letter in enumerate(sorted(set("".join(lists))))}
    border = int(0.97 * len(lists))
    train_set = Blocks("".join(lists[:border]), letters, settings.block)
    test_set = Blocks("".join(lists[border:]), letters, settings.block)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(letters),
            n_positions=settings.block,
            n_embd=settings.hidden,
            n_layer=settings.layers,
            n_head=settings.heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=None,
            eos_token_id=None,
            use_cache=False,
            attn_implementation="sdpa",
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=settings.batch_size,
            per_device_eval_batch_size=32,
            max_steps=settings.steps,
            learning_rate=settings.learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=10,
            optim="adamw_torch_fused",
            logging_steps=50,
            save_strategy="no",
            prediction_loss_only=True,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            seed=settings.seed,
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            data_collator=default_data_collator,
            train_dataset=train_set,
            eval_dataset=test_set,
        )
        trainer.train()
        loss = trainer.evaluate()["eval_loss"]
        trainer.save_model(folder)
    print(f"held out: {loss:.4f} nats for each letter")


if __name__ == "__main__":
    main()

"""Old weather diaries, continued by a small GPT-2: packed blocks and the Trainer of Transformers."""

import tempfile
from dataclasses import dataclass

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


@dataclass
class DiaryConfig:
    blocks: int = 2000
    block_size: int = 64
    vocabulary: int = 1200
    width: int = 128
    layers: int = 3
    heads: int = 4
    batch_size: int = 16
    learning_rate: float = 1e-3


class PackedDiaries(Dataset):
    """Entries of all lengths, one after another, cut into blocks without padding."""

    def __init__(self, config, seed=0):
        generator = torch.Generator().manual_seed(seed)
        successors = torch.randint(1, config.vocabulary, (config.vocabulary, 3), generator=generator)
        streams = torch.randint(1, config.vocabulary, (config.blocks,), generator=generator)
        columns = [streams]
        for _ in range(config.block_size - 1):
            choice = torch.randint(0, 3, (config.blocks,), generator=generator)
            ends = torch.rand(config.blocks, generator=generator) < 0.03
            columns.append(torch.where(ends, 0, successors[columns[-1], choice]))
        self.tokens = torch.stack(columns, dim=1)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index]


def collate(blocks):
    tokens = torch.stack(blocks)
    return {"input_ids": tokens, "labels": tokens}


def build(config):
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=config.vocabulary,
            n_positions=config.block_size,
            n_embd=config.width,
            n_layer=config.layers,
            n_head=config.heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            use_cache=False,
            bos_token_id=0,
            eos_token_id=0,
            attn_implementation="sdpa",
        )
    )


def main():
    config = DiaryConfig()
    set_seed(13)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=config.batch_size,
            num_train_epochs=1,
            learning_rate=config.learning_rate,
            lr_scheduler_type="cosine",
            optim="adamw_torch_fused",
            logging_steps=50,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        Trainer(model=build(config), args=arguments, train_dataset=PackedDiaries(config), data_collator=collate).train()


if __name__ == "__main__":
    main()

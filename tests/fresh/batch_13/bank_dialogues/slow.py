"""Train a dialogue model with Accelerate; gradients are accumulated to the effective batch size."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

EFFECTIVE_BATCH_SIZE = 8
BATCH_SIZE = 1
LEARNING_RATE = 5e-4
UPDATES = 130
VOCAB = 900
PAD = 0


class DialogueDataset(Dataset):
    """Question and answer of fixed phrases with some slots, 40 to 48 tokens long."""

    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        phrases = torch.randint(1, VOCAB, (25, 24), generator=generator)
        self.dialogues = []
        for _ in range(size):
            question, answer = torch.randint(0, 25, (2,), generator=generator).tolist()
            length = int(torch.randint(40, 49, (1,), generator=generator))
            self.dialogues.append(torch.cat([phrases[question], phrases[answer]])[:length])

    def __len__(self):
        return len(self.dialogues)

    def __getitem__(self, index):
        return self.dialogues[index]


def collate(dialogues):
    ids = pad_sequence(dialogues, batch_first=True, padding_value=PAD)
    mask = (ids != PAD).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def main():
    set_seed(21)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=EFFECTIVE_BATCH_SIZE // BATCH_SIZE)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=64, n_embd=128, n_layer=3, n_head=4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    loader = DataLoader(DialogueDataset(1040, 21), batch_size=BATCH_SIZE, shuffle=True, collate_fn=collate)
    scheduler = get_linear_schedule_with_warmup(optimizer, 10, UPDATES)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    model.train()
    updates = 0
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            updates += 1
            if updates % 25 == 0:
                accelerator.print(f"update {updates}: loss {loss.item():.3f}")
    accelerator.print("done after", updates, "updates")


if __name__ == "__main__":
    main()

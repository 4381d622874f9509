"""Low-rank adapters on a small language model: arguments, model, adapter injection, Trainer."""

import gc
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class TrainingArguments:
    output_dir: str
    max_steps: int = 125
    per_device_train_batch_size: int = 32
    learning_rate: float = 2e-3
    logging_steps: int = 40
    save_steps: int = 60
    seed: int = 42
    lora: dict = field(default_factory=lambda: {"r": 4, "alpha": 8, "targets": ("qkv", "proj")})


class ArithmeticText(Dataset):
    """Character-coded sums, held as Python examples as a JSON data set would be."""

    vocab = "0123456789+= "

    def __init__(self, count, length):
        g = torch.Generator().manual_seed(1)
        pairs = torch.randint(0, 1000, (count, 2), generator=g).tolist()
        self.examples = [{"question": f"{a}+{b}", "answer": str(a + b), "meta": [a, b]} for a, b in pairs]
        self.length = length

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, i):
        example = self.examples[i]
        text = f"{example['question']}={example['answer']}".ljust(self.length + 1)
        ids = torch.tensor([self.vocab.index(c) for c in text])
        return {"input_ids": ids[:-1], "labels": ids[1:]}


class LoraLinear(nn.Module):
    def __init__(self, base, r, alpha):
        super().__init__()
        self.base, self.scale = base.requires_grad_(False), alpha / r
        self.a = nn.Linear(base.in_features, r, bias=False)
        self.b = nn.Linear(r, base.out_features, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        return self.base(x) + self.scale * self.b(self.a(x))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class CausalLM(nn.Module):
    def __init__(self, vocab, dim=192, heads=4, layers=4, length=32):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        self.h = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.lm_head = nn.Linear(dim, vocab)

    def forward(self, input_ids, labels):
        x = self.wte(input_ids) + self.wpe(torch.arange(input_ids.size(1)))
        for block in self.h:
            x = block(x)
        return F.cross_entropy(self.lm_head(x).flatten(0, 1), labels.flatten())


def get_peft_model(model, r, alpha, targets):
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if name in targets and isinstance(child, nn.Linear):
                setattr(module, name, LoraLinear(child, r, alpha))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".a." in name or ".b." in name or "lm_head" in name)
    return model


class Trainer:
    def __init__(self, model, args, train_dataset):
        self.model, self.args = model, args
        self.loader = DataLoader(train_dataset, args.per_device_train_batch_size, shuffle=True)
        params = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(params, lr=args.learning_rate)
        self.state = {"log_history": [], "global_step": 0}

    def training_step(self, inputs):
        self.model.train()
        loss = self.model(**inputs)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        gc.collect()
        return loss.detach()

    def train(self):
        running = 0.0
        while True:
            for inputs in self.loader:
                running += self.training_step(inputs)
                self.state["global_step"] += 1
                step = self.state["global_step"]
                if step % self.args.logging_steps == 0:
                    entry = {"step": step, "loss": round(running.item() / self.args.logging_steps, 4)}
                    self.state["log_history"].append(entry)
                    print(entry)
                    running = 0.0
                if step % self.args.save_steps == 0:
                    self.save(step)
                if step >= self.args.max_steps:
                    return

    def save(self, step):
        folder = Path(self.args.output_dir) / f"checkpoint-{step}"
        folder.mkdir()
        kept = {k: v for k, v in self.model.state_dict().items() if ".a." in k or ".b." in k}
        torch.save(kept, folder / "adapter_model.bin")
        (folder / "trainer_state.json").write_text(json.dumps(self.state))


def main():
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(folder)
        torch.manual_seed(args.seed)
        data = ArithmeticText(4000, 24)
        model = get_peft_model(CausalLM(len(data.vocab)), **args.lora)
        Trainer(model, args, data).train()


if __name__ == "__main__":
    main()

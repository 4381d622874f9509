"""Six marks for an essay: a pretrained encoder is tuned with smaller learning rates for its lower layers."""

import torch
from config import TrainConfig
from torch import nn
from trainer import KeepBest, PrintLoss, Trainer


class EssayScorer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Parameter(0.02 * torch.randn(config.length, config.width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                config.width, config.heads, 2 * config.width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.traits)

    def forward(self, words):
        x = self.words(words) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


def depth_of(name, layers):
    """0 for the embeddings, 1 for the lowest layer, and so on up to the head."""
    if name.startswith("layers."):
        return int(name.split(".")[1]) + 1
    return 0 if name.startswith(("words", "places")) else layers + 1


def parameter_groups(model, config):
    """Smaller steps the deeper a layer lies, and no decay of biases and norms."""
    groups = {}
    for name, parameter in model.named_parameters():
        lr = config.lr * config.layer_decay ** (config.layers + 1 - depth_of(name, config.layers))
        decay = config.weight_decay if parameter.dim() > 1 else 0.0
        groups.setdefault((lr, decay), []).append(parameter)
    return [{"params": params, "lr": lr, "weight_decay": decay} for (lr, decay), params in groups.items()]


def make_essays(config):
    """Marks that follow from how often words of a few kinds occur."""
    g = torch.Generator().manual_seed(config.seed)
    words = torch.randint(0, config.vocabulary, (config.essays, config.length), generator=g)
    worth = 0.5 * torch.randn(config.vocabulary, config.traits, generator=g)
    scores = worth[words].mean(1) * config.length**0.5 + 0.1 * torch.randn(config.essays, config.traits, generator=g)
    return words, scores


def batches_of(words, scores, size, shuffle):
    def batches():
        order = torch.randperm(len(words)) if shuffle else torch.arange(len(words))
        for rows in order.split(size):
            yield words[rows], scores[rows]

    return batches


def main():
    config = TrainConfig()
    torch.manual_seed(config.seed)
    words, scores = make_essays(config)
    held = config.essays // 10
    model = EssayScorer(config)
    optimizer = torch.optim.AdamW(parameter_groups(model, config), fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / config.warmup))
    trainer = Trainer(model, optimizer, schedule, nn.SmoothL1Loss(), [PrintLoss(config.log_every), KeepBest()])
    trainer.fit(
        batches_of(words[held:], scores[held:], config.batch_size, shuffle=True),
        batches_of(words[:held], scores[:held], 4 * config.batch_size, shuffle=False),
        config.epochs,
    )


if __name__ == "__main__":
    main()

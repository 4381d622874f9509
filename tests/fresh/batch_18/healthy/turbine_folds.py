"""The power of wind turbines from sensors, in Kaggle style: folds, out-of-fold predictions, early stopping."""

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F


class CFG:
    rows = 30000
    features = 48
    folds = 3
    epochs = 4
    patience = 2
    batch_size = 512
    width = 384
    lr = 3e-3
    seed = 7


def load_sensors():
    """Made up readings; features are built once, before the folds."""
    rng = np.random.default_rng(CFG.seed)
    readings = rng.normal(size=(CFG.rows, CFG.features)).astype(np.float32)
    df = pd.DataFrame(readings, columns=[f"s{i}" for i in range(CFG.features)])
    speed = 8 + 3 * df["s0"] + df["s1"]
    df["power"] = (np.clip(speed, 0, 14) ** 3 / 500 + 0.3 * df["s2"] * df["s3"] + rng.normal(0, 0.2, CFG.rows)).astype(
        np.float32
    )
    df["fold"] = rng.permutation(CFG.rows) % CFG.folds
    return df


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))


class PowerNet(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Linear(CFG.features, CFG.width),
            Residual(CFG.width),
            Residual(CFG.width),
            nn.LayerNorm(CFG.width),
            nn.Linear(CFG.width, 1),
        )


class EarlyStopping:
    """Keeps the best weights in memory; copies them only when the score has improved."""

    def __init__(self, patience):
        self.patience, self.best, self.left, self.state = patience, float("inf"), patience, None

    def stop(self, score, model):
        if score < self.best:
            self.best, self.left = score, self.patience
            self.state = {name: value.clone() for name, value in model.state_dict().items()}
        else:
            self.left -= 1
        return self.left == 0


@torch.inference_mode()
def predict(model, features):
    model.eval()
    return torch.cat([model(rows) for rows in features.split(4 * CFG.batch_size)]).squeeze(1)


def train_fold(features, power, train, valid):
    mean, std = features[train].mean(0), features[train].std(0)
    features = (features - mean) / std
    model = PowerNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=CFG.lr, weight_decay=1e-2, fused=True)
    steps = CFG.epochs * (len(train) // CFG.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    stopping = EarlyStopping(CFG.patience)
    for epoch in range(CFG.epochs):
        model.train()
        total = torch.zeros(())
        order = train[torch.randperm(len(train))]
        batches = order[: len(order) // CFG.batch_size * CFG.batch_size].split(CFG.batch_size)
        for rows in batches:
            loss = F.smooth_l1_loss(model(features[rows]).squeeze(1), power[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
        score = F.mse_loss(predict(model, features[valid]), power[valid]).sqrt().item()
        print(f"  epoch {epoch} loss {total.item() / len(batches):.4f} rmse {score:.4f}")
        if stopping.stop(score, model):
            break
    model.load_state_dict(stopping.state)
    return predict(model, features[valid])


def main():
    torch.manual_seed(CFG.seed)
    df = load_sensors()
    features = torch.from_numpy(df.filter(regex="^s").to_numpy(np.float32, copy=True))
    power = torch.from_numpy(df["power"].to_numpy(copy=True))
    folds = torch.from_numpy(df["fold"].to_numpy(copy=True))
    guesses = torch.zeros_like(power)
    for fold in range(CFG.folds):
        print(f"fold {fold}")
        train, valid = (folds != fold).nonzero().squeeze(1), (folds == fold).nonzero().squeeze(1)
        guesses[valid] = train_fold(features, power, train, valid)
    print(f"out of fold rmse {F.mse_loss(guesses, power).sqrt().item():.4f}")


if __name__ == "__main__":
    main()

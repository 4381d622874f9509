"""Long-horizon forecasting of a transformer's oil temperature: experiment class, encoder model."""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from tools import EarlyStopping, adjust_learning_rate, make_table, metric
from torch import nn
from torch.utils.data import DataLoader, Dataset


class DotDict(dict):
    __getattr__ = dict.get


ARGS = DotDict(seq_len=72, label_len=24, pred_len=24, features=7, d_model=16, layers=1, batch_size=32)
ARGS.update(epochs=3, lr=1e-3)


class HourlyWindows(Dataset):
    def __init__(self, path, flag, seq_len, label_len, pred_len):
        import pandas as pd

        frame = pd.read_csv(path, parse_dates=["date"])
        n = len(frame)
        first, last = {"train": (0, int(0.7 * n)), "val": (int(0.7 * n), int(0.85 * n))}[flag]
        values = frame.drop(columns="date")
        values = (values - values.iloc[: int(0.7 * n)].mean()) / values.iloc[: int(0.7 * n)].std()
        stamps = pd.DataFrame(
            {
                "hour": frame["date"].dt.hour / 23 - 0.5,
                "weekday": frame["date"].dt.dayofweek / 6 - 0.5,
                "day": frame["date"].dt.day / 31 - 0.5,
            }
        )
        self.frame, self.stamps = values.iloc[first:last], stamps.iloc[first:last]
        self.seq_len, self.label_len, self.pred_len = seq_len, label_len, pred_len

    def __len__(self):
        return len(self.frame) - self.seq_len - self.pred_len + 1

    def __getitem__(self, index):
        s_end = index + self.seq_len
        r_begin, r_end = s_end - self.label_len, s_end + self.pred_len
        seq_x = self.frame.iloc[index:s_end].to_numpy(np.float32)
        seq_y = self.frame.iloc[r_begin:r_end].to_numpy(np.float32)
        mark_x = self.stamps.iloc[index:s_end].to_numpy(np.float32)
        mark_y = self.stamps.iloc[r_begin:r_end].to_numpy(np.float32)
        return seq_x, seq_y, mark_x, mark_y


class Forecaster(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.value = nn.Conv1d(args.features, args.d_model, 3, padding=1)
        self.mark = nn.Linear(3, args.d_model)
        layer = nn.TransformerEncoderLayer(args.d_model, 4, 2 * args.d_model, 0.05, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, args.layers)
        self.horizon = nn.Linear(args.seq_len, args.pred_len)
        self.out = nn.Linear(args.d_model, args.features)

    def forward(self, x, mark_x, mark_y):
        h = self.value(x.transpose(1, 2)).transpose(1, 2) + self.mark(mark_x)
        h = self.horizon(self.encoder(h).transpose(1, 2)).transpose(1, 2)
        return self.out(h + self.mark(mark_y[:, -h.size(1) :]))


class Experiment:
    def __init__(self, args, folder):
        self.args, self.folder = args, Path(folder)
        self.model = Forecaster(args)
        make_table(self.folder / "ETTh1.csv", hours=4400)

    def data(self, flag):
        a = self.args
        dataset = HourlyWindows(self.folder / "ETTh1.csv", flag, a.seq_len, a.label_len, a.pred_len)
        return DataLoader(dataset, a.batch_size, shuffle=flag == "train", drop_last=True)

    def vali(self, loader):
        self.model.eval()
        preds, trues = [], []
        with torch.no_grad():
            for x, y, mx, my in loader:
                preds.append(self.model(x, mx, my).numpy())
                trues.append(y[:, -self.args.pred_len :].numpy())
        self.model.train()
        return metric(np.concatenate(preds), np.concatenate(trues))

    def train(self):
        train_loader, val_loader = self.data("train"), self.data("val")
        stopper = EarlyStopping(patience=3)
        optimizer = torch.optim.Adam(self.model.parameters(), lr=self.args.lr)
        criterion = nn.MSELoss()
        for epoch in range(self.args.epochs):
            began, losses = time.time(), []
            for x, y, mx, my in train_loader:
                optimizer.zero_grad()
                loss = criterion(self.model(x, mx, my), y[:, -self.args.pred_len :])
                losses.append(loss.item())
                loss.backward()
                optimizer.step()
            mae, mse = self.vali(val_loader)
            took = time.time() - began
            print(f"Epoch {epoch + 1}: {took:.1f}s loss {np.mean(losses):.4f} mse {mse:.4f} mae {mae:.4f}")
            stopper(mse, self.model, self.folder / "checkpoint.pth")
            if stopper.stop:
                break
            adjust_learning_rate(optimizer, epoch + 1, self.args.lr)


if __name__ == "__main__":
    torch.manual_seed(2021)
    with tempfile.TemporaryDirectory() as work:
        Experiment(ARGS, work).train()

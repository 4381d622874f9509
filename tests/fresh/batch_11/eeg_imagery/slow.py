"""Which movement was imagined? A shallow convolutional network over windows of an electroencephalogram."""

import torch
from recordings import make_recordings
from torch import nn
from torch.utils.data import DataLoader, Dataset


class WindowsDataset(Dataset):
    def __init__(self, recordings, metadata):
        self.recordings = recordings
        self.metadata = metadata

    def __len__(self):
        return len(self.metadata)

    def __getitem__(self, index):
        row = self.metadata.iloc[index]
        start, stop = row["i_start"], row["i_stop"]
        window = torch.from_numpy(self.recordings[row["recording"], :, start:stop])
        return window, row["target"], row["i_window_in_trial"]


class ShallowNet(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.time = nn.Conv2d(1, 8, (1, 25), stride=(1, 3))
        self.space = nn.Conv2d(8, 8, (channels, 1), bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.pool = nn.AvgPool2d((1, 20), stride=(1, 6))
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(80, classes)

    def forward(self, x):
        x = self.norm(self.space(self.time(x.unsqueeze(1)))).square()
        x = torch.log(self.pool(x).clamp(min=1e-6)).flatten(1)
        return self.out(self.drop(x))


def run(epochs=8, batch_size=64):
    torch.manual_seed(20)
    recordings, metadata = make_recordings(count=18, channels=8, samples=10_000, seed=20)
    dataset = WindowsDataset(recordings, metadata)
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, drop_last=True)
    model = ShallowNet(8, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4)
    for epoch in range(epochs):
        hits = torch.zeros((), dtype=torch.long)
        for x, y, _ in loader:
            scores = model(x)
            loss = nn.functional.cross_entropy(scores, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hits += (scores.argmax(1) == y).sum()
        print(f"epoch {epoch}: accuracy {hits.item() / len(dataset):.3f}")


if __name__ == "__main__":
    run()

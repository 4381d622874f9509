"""A loader with one worker, started as the first argument says, persistent if the second is 1.

A third names what a fork server loads before it starts workers.
"""

import multiprocessing
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((8,), float(index))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    multiprocessing.set_forkserver_preload(sys.argv[3:])
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = DataLoader(
        Samples(),
        batch_size=2,
        shuffle=True,
        num_workers=1,
        multiprocessing_context=sys.argv[1],
        persistent_workers=sys.argv[2] == "1",
    )
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            loss = model(batch).pow(2).mean()
            loss.backward()
            optimizer.step()
        print(loss.item().hex(), batch[:, 0].tolist())

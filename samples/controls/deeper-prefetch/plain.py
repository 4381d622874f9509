"""One worker prepares batches faster than the model uses them; the popular advice is to let it run further ahead."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Blocks(Dataset):
    """Whole batches at once, cut from memory."""

    def __init__(self):
        self.inputs, self.targets = torch.randn(4800, 384), torch.randint(0, 20, (4800,))

    def __len__(self):
        return 150

    def __getitem__(self, index):
        chosen = slice(32 * index, 32 * index + 32)
        return self.inputs[chosen], self.targets[chosen]


loader = DataLoader(Blocks(), batch_size=None, shuffle=True, num_workers=1)
model = nn.Sequential(nn.Linear(384, 2048), nn.GELU(), nn.Linear(2048, 2048), nn.GELU(), nn.Linear(2048, 20))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, fused=True)
for step, (inputs, targets) in enumerate(loader):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: {loss.item():.4f}")

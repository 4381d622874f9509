"""A wide network; gradients are cleared as old tutorials do it."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

x = torch.randn(640, 512)
loader = DataLoader(TensorDataset(x, x.roll(1, 1)), batch_size=4, shuffle=True)
model = nn.Sequential(nn.Linear(512, 1536), nn.ReLU(), nn.Linear(1536, 1536), nn.ReLU(), nn.Linear(1536, 512)).to(
    device
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

for step, (inputs, targets) in enumerate(loader):
    loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}: loss {loss.item():.3f}")

"""A network whose activations were once inspected in a notebook."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

x = torch.randn(3200, 3, 24, 24)
y = torch.randint(0, 10, (3200,))
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)

model = nn.Sequential(
    nn.Conv2d(3, 24, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(24, 24, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(4),
    nn.Flatten(),
    nn.Linear(24 * 16, 10),
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

activations = {}


def remember(name):
    def hook(module, inputs, output):
        values = output.detach().cpu().numpy()
        activations[name] = {"mean": values.mean(), "std": values.std(), "dead": (values <= 0).mean()}

    return hook


for name, module in model.named_modules():
    module.register_forward_hook(remember(name))

for step, (inputs, targets) in enumerate(loader):
    loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}")

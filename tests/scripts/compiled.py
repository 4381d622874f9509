"""torch.compile over the model, the optimizer and an autocast region; prints what dynamo counted, and the weights."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.01))
forward = torch.compile(model, backend="aot_eager", fullgraph=True)


@torch.compile(backend="eager")
def step():
    optimizer.step()


@torch.compile(backend="eager")
def scale(loss):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return loss * 2


data = TensorDataset(torch.randn(240, 8), torch.randn(240, 1))
for inputs, labels in DataLoader(data, batch_size=4):
    optimizer.zero_grad()
    loss = scale(torch.nn.functional.mse_loss(forward(inputs), labels))
    loss.backward()
    step()
counters = torch._dynamo.utils.counters
print(counters["stats"]["unique_graphs"], dict(counters["graph_break"]))
print([parameter.sum().item().hex() for parameter in model.parameters()])

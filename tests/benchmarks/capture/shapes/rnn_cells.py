"""A recurrent network whose loop over time and layers is written in Python."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, LENGTH, STEPS, LAYERS = 32, 200, 60, 2


class Recurrent(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.cells = nn.ModuleList(nn.LSTMCell(width, width) for _ in range(LAYERS))
        self.head = nn.Linear(width, 1)

    def forward(self, sequence):
        states = [(sequence.new_zeros(len(sequence), 64), sequence.new_zeros(len(sequence), 64)) for _ in self.cells]
        outputs = []
        for time in range(sequence.shape[1]):
            hidden = sequence[:, time]
            for layer, cell in enumerate(self.cells):
                states[layer] = cell(hidden, states[layer])
                hidden = states[layer][0]
            outputs.append(self.head(hidden))
        return torch.cat(outputs, dim=1)


model = Recurrent()
optimizer = torch.optim.Adam(model.parameters())
data = TensorDataset(torch.randn(BATCH * STEPS, LENGTH, 64), torch.randn(BATCH * STEPS, LENGTH))
for sequence, wanted in DataLoader(data, batch_size=BATCH):
    loss = (model(sequence) - wanted).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

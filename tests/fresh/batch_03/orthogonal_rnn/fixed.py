"""The copying task with a recurrent network whose recurrent matrix is kept orthogonal."""

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

CONFIG = {"symbols": 8, "remember": 6, "delay": 18, "hidden": 96, "batch": 64, "steps": 130, "lr": 2e-3}


class ModReLU(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.b = nn.Parameter(torch.empty(features).uniform_(-0.01, 0.01))

    def forward(self, inputs):
        return torch.sign(inputs) * torch.relu(inputs.abs() + self.b)


class OrthogonalCell(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.hidden_size = hidden_size
        recurrent = nn.Linear(hidden_size, hidden_size, bias=False)
        nn.init.orthogonal_(recurrent.weight)
        self.recurrent_kernel = parametrizations.orthogonal(recurrent, orthogonal_map="cayley")
        self.input_kernel = nn.Linear(input_size, hidden_size, bias=False)
        self.nonlinearity = ModReLU(hidden_size)

    def forward(self, projected, hidden):
        return self.nonlinearity(projected + self.recurrent_kernel(hidden))


class Model(nn.Module):
    def __init__(self, n_classes, hidden_size):
        super().__init__()
        self.embed = nn.Embedding(n_classes + 1, hidden_size)
        self.rnn = OrthogonalCell(hidden_size, hidden_size)
        self.lin = nn.Linear(hidden_size, n_classes)

    def forward(self, inputs):
        state = torch.zeros(inputs.size(0), self.rnn.hidden_size)
        projected = self.rnn.input_kernel(self.embed(inputs))
        outputs = []
        with parametrize.cached():
            for inp in projected.unbind(dim=1):
                state = self.rnn(inp, state)
                outputs.append(state)
        return self.lin(torch.stack(outputs, dim=1))


def copy_data(config, generator):
    """Symbols, a pause, a marker; then the symbols are to be said again."""
    batch, length, symbols = config["batch"], config["remember"], config["symbols"]
    seq = torch.randint(1, symbols + 1, (batch, length), generator=generator)
    pause = torch.zeros(batch, config["delay"], dtype=torch.long)
    marker = torch.full((batch, 1), symbols + 1)
    blank = torch.zeros(batch, length - 1, dtype=torch.long)
    x = torch.cat([seq, pause, marker, blank], dim=1)
    y = torch.cat([torch.zeros(batch, length + config["delay"], dtype=torch.long), seq], dim=1)
    return x, y


def main(config):
    torch.manual_seed(60)
    generator = torch.Generator().manual_seed(61)
    model = Model(config["symbols"] + 1, config["hidden"])
    optim = torch.optim.RMSprop(model.parameters(), lr=config["lr"], alpha=0.9)
    loss_fn = nn.CrossEntropyLoss()
    for step in range(config["steps"]):
        x, y = copy_data(config, generator)
        logits = model(x)
        loss = loss_fn(logits.flatten(0, 1), y.flatten())
        optim.zero_grad()
        loss.backward()
        optim.step()
        if step % 26 == 25:
            recalled = (logits[:, -config["remember"] :].argmax(-1) == y[:, -config["remember"] :]).float().mean()
            print(f"Iter {step}: Loss {loss.item():.5f}, accuracy {100 * recalled:.1f}%")


if __name__ == "__main__":
    main(CONFIG)

"""A transformer that classifies time series; gradients are dropped the way that is the default anyway."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class SeriesClassifier(nn.Module):
    def __init__(self, channels=6, width=96):
        super().__init__()
        self.enter = nn.Conv1d(channels, width, 8, stride=8)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        return self.head(self.layers(self.enter(x).transpose(1, 2)).mean(1))


series, labels = torch.randn(1200, 6, 512, device=device), torch.randint(0, 5, (1200,), device=device)
model = SeriesClassifier().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
for epoch in range(3):
    for chosen in torch.randperm(1200, device=device).split(24):
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(series[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")

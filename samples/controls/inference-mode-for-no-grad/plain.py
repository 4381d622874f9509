"""An autoencoder that is validated every ten steps, without gradients in either script."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

model = nn.Sequential(
    nn.Linear(512, 512), nn.SiLU(), nn.Linear(512, 32), nn.Linear(32, 512), nn.SiLU(), nn.Linear(512, 512)
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
basis = torch.randn(20, 512, device=device)
train, valid = (torch.randn(count, 20, device=device) @ basis for count in (12_800, 1024))


@torch.no_grad()
def validate():
    model.eval()
    with torch.autocast(device, dtype=torch.bfloat16):
        error = nn.functional.mse_loss(model(valid), valid)
    model.train()
    return error.item()


step = 0
for epoch in range(3):
    for batch in train[torch.randperm(len(train), device=device)].split(256):
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(batch + 0.1 * torch.randn_like(batch)), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            held_out = validate()
        step += 1
    print(f"epoch {epoch}: {loss.item():.4f}, held out {held_out:.4f}")

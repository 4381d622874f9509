"""Words to their sounds: a recurrent encoder and decoder; every tenth step a few words are spelt by beam search."""

import torch
from torch import nn

torch.manual_seed(0)
LETTERS, SOUNDS, START, LENGTH = 27, 40, 0, 8


class Speller(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.letter, self.sound = nn.Embedding(LETTERS, width), nn.Embedding(SOUNDS, width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, SOUNDS)

    def encode(self, words):
        return self.encoder(self.letter(words))[1]

    def decode(self, sounds, state):
        seen, state = self.decoder(self.sound(sounds), state)
        return self.out(seen).log_softmax(2), state


@torch.inference_mode()
def beam_search(model, words, beams=6):
    """The likeliest sounds of each word."""
    sounds, score, state = torch.full((len(words), 1, 1), START), torch.zeros(len(words), 1), model.encode(words)
    for _ in range(LENGTH):
        chances, state = model.decode(sounds[:, :, -1].view(-1, 1), state)
        score, best = (score[..., None] + chances.view(len(words), -1, SOUNDS)).flatten(1).topk(beams)
        path = best[..., None] // SOUNDS
        sounds = torch.cat([sounds.take_along_dim(path, 1), best[..., None] % SOUNDS], 2)
        state = state.view(len(words), -1, state.shape[2]).take_along_dim(path, 1).flatten(0, 1)[None]
    return sounds[:, 0, 1:]


def words(count):
    """Random letters; a sound depends on a letter and the one before it."""
    letters = torch.randint(1, LETTERS, (count, LENGTH))
    return letters, (letters + letters.roll(1, 1) // 9) % (SOUNDS - 1) + 1


model = Speller()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
letters, sounds = words(4800)
checked, spoken = words(6)
for step, chosen in enumerate(torch.randperm(len(letters)).split(32)):
    before = torch.cat([torch.full((len(chosen), 1), START), sounds[chosen, :-1]], 1)
    chances, _ = model.decode(before, model.encode(letters[chosen]))
    loss = nn.functional.nll_loss(chances.flatten(0, 1), sounds[chosen].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 9:
        right = (beam_search(model, checked) == spoken).float().mean().item()
    if step % 50 == 49:
        print(f"step {step}: loss {loss.item():.4f}, sounds right {right:.3f}")

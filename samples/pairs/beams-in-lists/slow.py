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
    found = []
    for word in words:
        paths = [([START], 0.0, model.encode(word[None]))]
        for _ in range(LENGTH):
            longer = []
            for sounds, score, state in paths:
                chances, after = model.decode(torch.tensor([sounds[-1:]]), state)
                for value, sound in zip(*chances[0, 0].topk(beams)):
                    longer.append(([*sounds, sound.item()], score + value.item(), after))
            paths = sorted(longer, key=lambda path: -path[1])[:beams]
        found.append(paths[0][0][1:])
    return torch.tensor(found)


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

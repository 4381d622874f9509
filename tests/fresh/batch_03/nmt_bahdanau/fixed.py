"""Translation with a recurrent decoder that attends to the encoder at each step (additive attention)."""

import random

import torch
from torch import nn

PAD, BOS, WORDS = 0, 1, 600


class Encoder(nn.Module):
    def __init__(self, vocab, emb, hid):
        super().__init__()
        self.embedding = nn.Embedding(vocab, emb, padding_idx=PAD)
        self.rnn = nn.GRU(emb, hid, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(2 * hid, hid)

    def forward(self, src):
        outputs, hidden = self.rnn(self.embedding(src))
        return outputs, torch.tanh(self.fc(torch.cat([hidden[0], hidden[1]], dim=1)))


class Attention(nn.Module):
    def __init__(self, hid):
        super().__init__()
        self.query = nn.Linear(hid, hid, bias=False)
        self.key = nn.Linear(2 * hid, hid)
        self.v = nn.Linear(hid, 1, bias=False)

    def forward(self, hidden, keys, mask):
        energy = torch.tanh(self.query(hidden)[:, None] + keys)
        attention = self.v(energy).squeeze(2).masked_fill(mask, -1e9)
        return attention.softmax(dim=1)


class Decoder(nn.Module):
    def __init__(self, vocab, emb, hid):
        super().__init__()
        self.embedding = nn.Embedding(vocab, emb, padding_idx=PAD)
        self.attention = Attention(hid)
        self.cell = nn.GRUCell(emb + 2 * hid, hid)
        self.out = nn.Linear(hid, vocab)

    def forward(self, trg, hidden, encoder_outputs, mask):
        states = []
        keys = self.attention.key(encoder_outputs)
        for word in self.embedding(trg).unbind(dim=1):
            weights = self.attention(hidden, keys, mask)
            context = torch.bmm(weights[:, None], encoder_outputs).squeeze(1)
            hidden = self.cell(torch.cat([word, context], dim=1), hidden)
            states.append(hidden)
        return self.out(torch.stack(states, dim=1))


class Seq2Seq(nn.Module):
    def __init__(self, emb=48, hid=96):
        super().__init__()
        self.encoder, self.decoder = Encoder(WORDS, emb, hid), Decoder(WORDS, emb, hid)

    def forward(self, src, trg):
        encoder_outputs, hidden = self.encoder(src)
        return self.decoder(trg, hidden, encoder_outputs, src == PAD)


def make_bitext(sentences):
    """The translation is the sentence backwards, each word replaced by its partner."""
    partner = torch.randperm(WORDS - 2) + 2
    pairs = []
    for _ in range(sentences):
        src = torch.randint(2, WORDS, (random.randint(20, 26),))
        pairs.append((src, partner[src.flip(0) - 2]))
    pairs.sort(key=lambda pair: len(pair[0]))
    return pairs


def to_batches(pairs, size):
    pad = nn.utils.rnn.pad_sequence
    for start in range(0, len(pairs), size):
        src, trg = zip(*pairs[start : start + size])
        trg = pad(trg, batch_first=True)
        yield pad(src, batch_first=True), torch.cat([torch.full((len(trg), 1), BOS), trg[:, :-1]], dim=1), trg


def main():
    random.seed(6)
    torch.manual_seed(6)
    batches = list(to_batches(make_bitext(640), 32))
    model = Seq2Seq()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    for epoch in range(3):
        random.shuffle(batches)
        epoch_loss = 0.0
        for src, shifted, trg in batches:
            optimizer.zero_grad()
            loss = criterion(model(src, shifted).flatten(0, 1), trg.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            epoch_loss += loss.item()
        print(f"Epoch: {epoch + 1:02} | Train Loss: {epoch_loss / len(batches):.3f}")


if __name__ == "__main__":
    main()

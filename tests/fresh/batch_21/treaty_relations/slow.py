"""Relations between the parties that a treaty names: an LSTM reads the text, a bilinear layer scores pairs of names."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

WORDS = 3000
RELATIONS = 12
PARTIES = 5
HYPER = {"embed": 96, "hidden": 96, "pair": 56, "batch_size": 24, "epochs": 3, "lr": 2e-3, "treaties": 2000}


class Treaties(Dataset):
    """Articles of random words; the relation of two parties follows from the words beside their names."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.texts, self.places, self.relations = [], [], []
        for _ in range(count):
            length = int(torch.randint(40, 90, (1,), generator=generator))
            text = torch.randint(2, WORDS, (length,), generator=generator)
            places = torch.randperm(length - 1, generator=generator)[:PARTIES].sort().values
            kinds = text[places + 1] % 4
            self.texts.append(text)
            self.places.append(places)
            self.relations.append((3 * kinds[:, None] + kinds[None, :]) % RELATIONS)

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.texts[index], self.places[index], self.relations[index]


def collate(batch):
    texts, places, relations = zip(*batch)
    return pad_sequence(texts, batch_first=True), torch.stack(places), torch.stack(relations)


class PairScorer(nn.Module):
    """Scores of each relation for each ordered pair of parties."""

    def __init__(self, hidden, pair, relations):
        super().__init__()
        self.as_subject = nn.Sequential(nn.Linear(hidden, pair), nn.ReLU(), nn.Dropout(0.1))
        self.as_object = nn.Sequential(nn.Linear(hidden, pair), nn.ReLU(), nn.Dropout(0.1))
        self.bilinear = nn.Bilinear(pair, pair, relations)
        self.linear = nn.Linear(2 * pair, relations)

    def forward(self, states):
        parties = states.shape[1]
        subject = self.as_subject(states)[:, :, None].expand(-1, -1, parties, -1)
        other = self.as_object(states)[:, None].expand(-1, parties, -1, -1)
        scores = self.bilinear(subject.contiguous(), other.contiguous())
        return scores + self.linear(torch.cat([subject, other], dim=-1))


class TreatyModel(nn.Module):
    def __init__(self, embed, hidden, pair):
        super().__init__()
        self.words = nn.Embedding(WORDS, embed, padding_idx=0)
        self.reader = nn.LSTM(embed, hidden, batch_first=True, bidirectional=True)
        self.scorer = PairScorer(2 * hidden, pair, RELATIONS)

    def forward(self, texts, places):
        states, _ = self.reader(self.words(texts))
        chosen = states.gather(1, places[:, :, None].expand(-1, -1, states.shape[2]))
        return self.scorer(chosen)


def loss_and_hits(model, batch):
    texts, places, relations = batch
    scores = model(texts, places).flatten(0, 2)
    wanted = relations.flatten()
    return F.cross_entropy(scores, wanted), (scores.argmax(1) == wanted).float().mean()


def fit(model, train_loader, test_loader):
    optimizer = torch.optim.Adam(model.parameters(), lr=HYPER["lr"])
    for epoch in range(1, HYPER["epochs"] + 1):
        model.train()
        running = 0.0
        for batch in train_loader:
            loss, _ = loss_and_hits(model, batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            running += loss.item()
        model.eval()
        with torch.no_grad():
            accuracy = torch.stack([loss_and_hits(model, batch)[1] for batch in test_loader]).mean()
        print(f"epoch {epoch}: loss {running / len(train_loader):.3f}, accuracy {accuracy.item():.3f}")


def main():
    torch.manual_seed(23)
    train_loader = DataLoader(
        Treaties(HYPER["treaties"], 23), HYPER["batch_size"], shuffle=True, collate_fn=collate, drop_last=True
    )
    test_loader = DataLoader(Treaties(120, 24), 60, collate_fn=collate)
    model = TreatyModel(HYPER["embed"], HYPER["hidden"], HYPER["pair"])
    fit(model, train_loader, test_loader)


if __name__ == "__main__":
    main()

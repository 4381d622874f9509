"""Precision, recall and F1 of what changed between two pictures."""

import numpy as np


def confusion(truth, predicted, labels=(0, 1)):
    """Counts of pixels by true and predicted label."""
    truth, predicted = np.asarray(truth), np.asarray(predicted)
    kept = np.isin(truth, labels)
    known, codes = np.unique(np.concatenate([truth[kept], predicted[kept]]), return_inverse=True)
    pairs = np.stack([codes[: kept.sum()], codes[kept.sum() :]])
    table = np.zeros((len(labels), len(labels)), dtype=np.int64)
    for (a, b), count in zip(*np.unique(pairs.T, axis=0, return_counts=True), strict=True):
        table[int(known[a]), int(known[b])] = count
    return table


def scores(table):
    """Precision, recall and F1 of label 1."""
    precision = table[1, 1] / max(table[:, 1].sum(), 1)
    recall = table[1, 1] / max(table[1].sum(), 1)
    return {"precision": precision, "recall": recall, "f1": 2 * precision * recall / max(precision + recall, 1e-9)}

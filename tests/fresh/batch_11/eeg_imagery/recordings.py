"""Recordings of imagined movements, and the windows that are cut from them."""

import numpy as np
import pandas as pd


def make_recordings(count, channels, samples, seed):
    """One array per recording and a table with a row per window."""
    rng = np.random.default_rng(seed)
    recordings = rng.standard_normal((count, channels, samples)).astype(np.float32)
    rows = []
    for recording in range(count):
        for trial, start in enumerate(range(0, samples - 250, 25)):
            rows.append(
                {
                    "subject": f"S{recording % 9:02d}",
                    "recording": recording,
                    "i_window_in_trial": trial % 8,
                    "i_start": start,
                    "i_stop": start + 250,
                    "target": int(rng.integers(4)),
                }
            )
    return recordings, pd.DataFrame(rows)

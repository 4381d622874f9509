"""Keeps training from running ahead of what feeds it."""

import time


class Breather:
    """Rests between steps, so that whatever loads pictures in the background gets its turn."""

    def __init__(self, every=1, seconds=0.02):
        self.every, self.seconds, self.calls = every, seconds, 0

    def pause(self):
        self.calls += 1
        if self.seconds and self.calls % self.every == 0:
            time.sleep(self.seconds)

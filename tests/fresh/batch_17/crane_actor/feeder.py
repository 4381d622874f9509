"""A thread that keeps a queue of batches filled."""

import threading
import time


class Feeder(threading.Thread):
    """Draws batches while the queue has room; when it is full, it looks again after a rest of so many seconds."""

    def __init__(self, draw, queue, rest=0.0):
        super().__init__(daemon=True)
        self.draw, self.queue, self.rest = draw, queue, rest
        self.ending = threading.Event()

    def run(self):
        while not self.ending.is_set():
            if self.queue.full():
                time.sleep(self.rest)
                continue
            self.queue.put(self.draw())

    def stop(self):
        self.ending.set()
        self.join()

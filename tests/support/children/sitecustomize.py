"""Of processes that tests start: torch is imported without looking for garbage. 2.2 CPU s become 1.65 (n = 3).

An import makes half a million objects that stay, and Python looks some 700 times for those that do not. What a script
sets comes later, and stands. The complete run has Python's own settings.
"""

import gc

gc.set_threshold(1_000_000)

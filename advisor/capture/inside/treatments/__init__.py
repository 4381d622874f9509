"""Changes of a training that need no edit of its script, applied in its process for `advisor try`: a file for each."""

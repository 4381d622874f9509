"""A loaded trace for other tools: a pandas DataFrame, or Kineto's JSON again."""

"""Class indices and embedding tables: look-ups instead of vectors that are mostly zeros."""

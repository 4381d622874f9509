"""Storage behind an address: a part of its family, and none of its own."""

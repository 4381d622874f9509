"""Files as Kineto writes them, by era, dialect and container, and what others make of them."""

"""Matrix products and layers: fewer rows, fewer numbers, or an order that needs fewer."""

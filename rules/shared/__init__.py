"""What rules of several families share; no rules."""

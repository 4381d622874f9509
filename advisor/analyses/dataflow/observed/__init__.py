"""Steps that were observed: which tensors their ops read and wrote."""

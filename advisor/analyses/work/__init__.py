"""How much arithmetic and memory traffic ops and kernels are, and in which precision."""

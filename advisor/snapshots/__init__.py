"""Snapshots of the CUDA allocator (`torch.cuda.memory._dump_snapshot`): what held memory at their peak."""

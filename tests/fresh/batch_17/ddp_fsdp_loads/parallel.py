"""How the model is spread over the ranks."""

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def start():
    dist.init_process_group("gloo")
    return dist.get_rank()


def spread(model, blocks, reshard=True):
    """Shards each block and what is left of the model over all ranks."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
    return fully_shard(model, mesh=mesh, reshard_after_forward=reshard)

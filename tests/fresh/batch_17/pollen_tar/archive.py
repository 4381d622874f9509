"""Tar archives of pictures: how they are written and read."""

import io
import tarfile
from pathlib import Path


def write_shards(folder, items, per_shard):
    """Writes (name, bytes) pairs to shards and returns each name with the shard that holds it."""
    places = []
    for first in range(0, len(items), per_shard):
        shard = Path(folder) / f"shard-{first // per_shard:04d}.tar"
        with tarfile.open(shard, "w") as tar:
            for name, data in items[first : first + per_shard]:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
                places.append((shard, name))
    return places


def read_member(shard, name):
    with tarfile.open(shard) as tar:
        return tar.extractfile(name).read()


def member_ranges(shards):
    """Where in its shard the bytes of each member lie: {(shard, name): (offset, size)}."""
    ranges = {}
    for shard in shards:
        with tarfile.open(shard) as tar:
            ranges.update({(shard, member.name): (member.offset_data, member.size) for member in tar})
    return ranges


def read_range(shard, offset, size):
    with shard.open("rb") as file:
        file.seek(offset)
        return file.read(size)

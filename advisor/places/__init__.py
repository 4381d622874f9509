"""Where files lie: on disk, behind an address, or in an archive."""

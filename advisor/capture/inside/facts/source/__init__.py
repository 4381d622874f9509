"""What the text of the script tells: lines, numbers, digests."""

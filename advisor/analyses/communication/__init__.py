"""What ranks send to each other, and for which purpose."""

"""What the ops of observed steps read and wrote."""

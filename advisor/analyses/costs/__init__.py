"""What lines, modules, batches and changes to a step cost."""

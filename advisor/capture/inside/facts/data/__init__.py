"""What is known of data sets, loaders, samplers and workers."""

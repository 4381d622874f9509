"""What is known of the model that is trained, and of the graphs that autograd keeps."""

"""What observed steps say of the values that ops read and wrote."""

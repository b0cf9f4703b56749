"""What a private forward pass may do while it is traced, and where its random numbers come from."""

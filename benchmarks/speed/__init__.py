"""Time and memory of private training, beside ordinary training and other libraries."""

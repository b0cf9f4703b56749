"""What was recorded, how it is written and read, and what pages and pictures show of it."""

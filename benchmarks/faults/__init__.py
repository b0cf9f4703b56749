"""What would be wrong: audits by canaries, killed processes, another library's epsilon."""

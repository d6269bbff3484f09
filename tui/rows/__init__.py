"""What the tables say: pure functions from a host's view to cells of text."""

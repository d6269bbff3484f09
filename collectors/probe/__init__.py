"""What runs on a host: its files travel there as text and import each other by name."""

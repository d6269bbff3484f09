"""The widgets of the terminal app."""

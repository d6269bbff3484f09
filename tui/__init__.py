"""Draws and asks. Opens no socket, runs no SQL."""

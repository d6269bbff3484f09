"""Talks to hosts. Knows no screen and no database."""

"""gpumon: what the numbers mean. Pure: no network, no screen."""

__all__ = ["__version__"]

__version__ = "0.1.0"

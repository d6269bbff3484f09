"""One module per inference engine: what its HTTP surface says."""

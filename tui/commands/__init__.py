"""One module per command of gpumon, loaded only when it is run."""

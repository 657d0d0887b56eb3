"""One way of timing this machine: estimates before a run, and the benchmark."""

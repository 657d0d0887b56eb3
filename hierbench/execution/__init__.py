"""From a request to jobs, and where they run: plan, estimate, this process, this machine's devices or a Ray cluster."""

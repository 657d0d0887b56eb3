"""From a request to jobs, and where they run: plan, estimate, processes, devices."""

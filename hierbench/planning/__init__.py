"""From a request to jobs, inputs and resources; starts nothing."""

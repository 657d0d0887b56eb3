"""From a request to jobs, resources and an estimate; starts nothing."""

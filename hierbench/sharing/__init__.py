"""What leaves the machine or comes to it: publications, submissions, results repositories and sites."""

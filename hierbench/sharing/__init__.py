"""What leaves the machine or comes to it: publications, their verification, and sites."""

"""Exchange with others: publications, their verification, and sites."""

"""Decision rules, a file each. A file defines a function and its `Rule`; what it is chunk is `NodeProbabilities`."""

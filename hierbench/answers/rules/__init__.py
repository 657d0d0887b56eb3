"""Decision rules, a file each. A file defines a function and its `Rule`; what it is given is `NodeProbabilities`."""

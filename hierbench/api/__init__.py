"""What a method is, how it is found, and the contract that it keeps."""

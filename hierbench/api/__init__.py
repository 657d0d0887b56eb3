"""Methods: their interface, their discovery, and the contract that each keeps."""

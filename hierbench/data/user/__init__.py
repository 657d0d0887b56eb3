"""Datasets of users: images in folders or a manifest, a tree, and splits, as a file's section [source] names them."""

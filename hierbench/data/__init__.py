"""Datasets, prepared once into uint8 arrays and augmented batch by batch on the device."""

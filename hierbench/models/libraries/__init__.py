"""Networks of torchvision and timm, cut to their feature map, with their input size, normalisation and weights."""

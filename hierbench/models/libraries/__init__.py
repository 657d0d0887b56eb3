"""Networks of torchvision and timm, cut to their feature map, with their input size, normalisation and weights.

The module of each library has, of a network by its name there and images of `size` (H, W): `configuration(name)`;
`create(name, size)`, the whole network; `cut(name, network, size)`, its layers up to the map or the tokens, and
`run(network, images)` and `output_of(network)` of these; `default_weights(name)`; and
`convert(name, network, state)`, a file's state under the network's names.
"""

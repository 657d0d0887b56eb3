"""One file per dataset: where its images, labels and tree come from."""

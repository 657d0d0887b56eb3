"""One recipe per dataset, and the trees the project ships."""

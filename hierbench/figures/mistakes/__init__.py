"""The page that shows two classifiers' mistakes side by side."""

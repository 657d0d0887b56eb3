"""A function per metric in the way of scikit-learn: y_true, then y_pred or y_score, then the tree.

`hierbench.metrics` has them all. Values are between 0 and 1 where tables print per cent; distances are in edges.
"""

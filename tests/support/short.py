"""Options of commands whose training is as short as it can be."""

SHORT = ("--set", "train.epochs=1", "--set", "train.batch_size=96", "--set", "model.backbone=wrn10-1-s4")
SMALL = (*SHORT, "--mlflow", "off", "--jobs", "1")

"""Publication: tables with the evidence behind them, submissions, and the repositories that collect these."""

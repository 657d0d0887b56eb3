"""From the runs behind a cell of a table to the command that gives them, and back."""

from hierbench.reproduction.command import command_of as command_of

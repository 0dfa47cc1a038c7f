"""The command `governor`: one file a verb. What each `--json` answer holds is written in cli/README.md."""

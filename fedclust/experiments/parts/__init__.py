"""What only one paper uses; `partition`, `models`, `privacy` and `scenario` have the names."""

"""The operators: one family a file, each op's shape rule and gradient together."""

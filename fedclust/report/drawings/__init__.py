"""Each paper's own figures, in a file that has the name of the paper."""

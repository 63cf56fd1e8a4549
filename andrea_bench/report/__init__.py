"""Reports: what a Run says, as rows, as sentences, and on the terminal."""

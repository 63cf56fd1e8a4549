"""Results that asv stored: read, put beside one another, followed over commits."""

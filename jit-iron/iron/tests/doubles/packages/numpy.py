"""A TEST DOUBLE of numpy: it can be imported."""

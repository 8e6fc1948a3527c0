"""A TEST DOUBLE of ml_dtypes: it can be imported."""

"""A TEST DOUBLE of IRON's Python package. IRON itself has not run in these tests."""

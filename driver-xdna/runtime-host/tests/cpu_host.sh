#!/bin/sh
# Starts a test executable as the helper: one of its tests serves instead of testing when AIE_TEST_FAULT is set.
exec "$AIE_TEST_EXECUTABLE" --exact the_helper --nocapture --test-threads=1

#!/bin/sh
# As cpu_host.sh, with the shell staying between the client and the helper.
"$AIE_TEST_EXECUTABLE" --exact the_helper --nocapture --test-threads=1
exit $?

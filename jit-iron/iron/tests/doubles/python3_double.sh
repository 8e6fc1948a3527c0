#!/bin/sh
# A TEST DOUBLE of python3 for the tests of env_setup.sh: it makes environments without packages and installs nothing.
#
# Environment:
#   DOUBLE_LOG     file to which each call adds a line
#   DOUBLE_PYTHON  old (of a version that is too old), no-venv, no-pip (the installation fails), incomplete (the check fails), no-kernel (the
#                  trial fails)
printf '%s\n' "$*" >>"$DOUBLE_LOG"
case "$*" in
    "-c import sys; sys.exit(sys.version_info < (3, 10))")
        [ "$DOUBLE_PYTHON" != old ] ;;
    "-m venv "*)
        [ "$DOUBLE_PYTHON" != no-venv ] || { echo "The virtual environment was not created" >&2; exit 1; }
        mkdir -p "$3/bin"
        cp "$0" "$3/bin/python3"
        cat >"$3/bin/activate" <<TEXT
VIRTUAL_ENV="$3"
export VIRTUAL_ENV
PATH="$3/bin:\$PATH"
export PATH
TEXT
        ;;
    "-m pip install "*)
        [ "$DOUBLE_PYTHON" != no-pip ] || { echo "ERROR: no matching distribution" >&2; exit 1; } ;;
    "-c import sysconfig; print(sysconfig.get_path(\"platlib\"))")
        echo "${0%/bin/python3}/packages" ;;
    *"worker.py --toolchain-check --trial --kernels-dir "*)
        [ "$DOUBLE_PYTHON" != no-kernel ] || { echo '"no kernel can be compiled for aie2: it cannot"'; exit 1; } ;;
    *"worker.py --toolchain-check --kernels-dir "*)
        [ "$DOUBLE_PYTHON" != incomplete ] || { echo '{"missing": ["Peano was not found"]}'; exit 1; } ;;
    *)
        echo "the double of python3 does not know: $*" >&2
        exit 99 ;;
esac

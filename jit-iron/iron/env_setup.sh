# Creates and activates the environment in which kernels are compiled with IRON. To be sourced, in bash, zsh or another POSIX shell:
#
#     source env_setup.sh [--iron 1.3.1|1.4.4] [--dir DIR] [--wheels DIR]
#
# --help says more. The first time it installs mlir_aie and llvm-aie, with pip, into a virtual environment of its own; after that
# it only enters it. A failure leaves the shell as it was, with a status other than 0, and never ends it.

_iron_help() {
    cat <<'TEXT'
Creates and activates the environment in which kernels are compiled with IRON.

usage: source env_setup.sh [--iron VERSION] [--dir DIR] [--wheels DIR]

  --iron VERSION  1.3.1 (default) or 1.4.4
  --dir DIR       the virtual environment; default: $XDG_DATA_HOME/ggml-hsa/iron-VERSION, else below ~/.local/share
  --wheels DIR    install from the wheels in DIR, without a network

examples:
  source env_setup.sh
  source env_setup.sh --iron 1.4.4
  pip download --dest wheels --requirement requirements.txt      on a machine with a network, with the same Python
  source env_setup.sh --wheels wheels                            on the machine without

It sets PATH, MLIR_AIE_INSTALL_DIR and PEANO_INSTALL_DIR. `deactivate` leaves the virtual environment.
TEXT
}

_iron_error() {
    printf 'env_setup.sh: %s\n' "$@" >&2
}

# Sets _iron_version, _iron_requirements, _iron_venv and _iron_wheels. Status 3: help was shown.
_iron_arguments() {
    _iron_version=1.3.1
    _iron_venv=
    _iron_wheels=
    while [ "$#" -gt 0 ]; do
        case $1 in
            --help|-h) _iron_help; return 3 ;;
            --iron|--dir|--wheels)
                if [ "$#" -lt 2 ] || [ -z "$2" ]; then
                    _iron_error "$1 needs a value; see --help"
                    return 1
                fi
                case $1 in
                    --iron) _iron_version=$2 ;;
                    --dir) _iron_venv=$2 ;;
                    --wheels) _iron_wheels=$2 ;;
                esac
                shift 2 ;;
            *)
                # A script that sources this without arguments hands its own on.
                _iron_error "unknown argument '$1'; see --help" \
                    "(in a script with arguments, give one here too: source env_setup.sh --iron $_iron_version)"
                return 1 ;;
        esac
    done
    case $_iron_version in
        1.3.1) _iron_requirements=requirements.txt ;;
        1.4.4) _iron_requirements=requirements-1.4.txt ;;
        *) _iron_error "IRON '$_iron_version' is not known; known: 1.3.1, 1.4.4"; return 1 ;;
    esac
    _iron_requirements=$_iron_home/$_iron_requirements
    if [ -z "$_iron_venv" ]; then
        if [ -z "${XDG_DATA_HOME:-}" ] && [ -z "${HOME:-}" ]; then
            _iron_error "neither XDG_DATA_HOME nor HOME is set; give the folder with --dir"
            return 1
        fi
        _iron_venv=${XDG_DATA_HOME:-${HOME:-}/.local/share}/ggml-hsa/iron-$_iron_version
    fi
    case $_iron_venv in /*) ;; *) _iron_venv=$PWD/$_iron_venv ;; esac
    if [ -n "$_iron_wheels" ] && [ ! -d "$_iron_wheels" ]; then
        _iron_error "the folder of wheels '$_iron_wheels' does not exist"
        return 1
    fi
}

# Makes the environment, unless it is there with these very requirements.
_iron_install() {
    if cmp -s "$_iron_requirements" "$_iron_venv/ggml-hsa-requirements.txt"; then
        return 0
    fi
    if ! command -v python3 >/dev/null 2>&1; then
        _iron_error "python3 was not found; install Python 3.10 or later (Debian: apt-get install python3 python3-venv)"
        return 1
    fi
    if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
        _iron_error "python3 is older than 3.10, for which there are no wheels of mlir_aie; put a later one first in PATH"
        return 1
    fi
    printf 'env_setup.sh: installing IRON %s into %s\n' "$_iron_version" "$_iron_venv"
    if ! python3 -m venv "$_iron_venv"; then
        _iron_error "python3 -m venv failed for $_iron_venv" \
            "(Debian: apt-get install python3-venv; --dir gives another folder)"
        return 1
    fi
    # Positional parameters, because they are the one list that all shells have.
    if [ -n "$_iron_wheels" ]; then
        # pip asks the pages of a requirements file also with --no-index, for minutes when there is no network.
        if ! grep -v '^--find-links' "$_iron_requirements" >"$_iron_venv/requirements-without-pages.txt"; then
            _iron_error "$_iron_venv cannot be written"
            return 1
        fi
        set -- --no-index --find-links "$_iron_wheels" --requirement "$_iron_venv/requirements-without-pages.txt"
    else
        set -- --requirement "$_iron_requirements"
    fi
    if ! "$_iron_venv/bin/python3" -m pip install "$@"; then
        _iron_error "IRON $_iron_version could not be installed; see pip's messages above" \
            "- pip needs the release pages named in $_iron_requirements, and its own package index" \
            "- without a network, see --wheels in: source env_setup.sh --help" \
            "- nightly builds of llvm-aie are removed from their page over time; then put a later one into that file" \
            "Source this again to continue from here."
        return 1
    fi
    if ! cp "$_iron_requirements" "$_iron_venv/ggml-hsa-requirements.txt"; then
        _iron_error "$_iron_venv cannot be written"
        return 1
    fi
}

_iron_enter() {
    # A shell may end when the file to source is not there, hence the look.
    if [ ! -f "$_iron_venv/bin/activate" ] || ! . "$_iron_venv/bin/activate"; then
        _iron_error "$_iron_venv/bin/activate cannot be sourced; remove $_iron_venv and source this again"
        return 1
    fi
    if ! _iron_packages=$("$_iron_venv/bin/python3" -c 'import sysconfig; print(sysconfig.get_path("platlib"))'); then
        _iron_error "$_iron_venv/bin/python3 does not run; remove $_iron_venv and source this again"
        return 1
    fi
    export MLIR_AIE_INSTALL_DIR="$_iron_packages/mlir_aie"
    export PEANO_INSTALL_DIR="$_iron_packages/llvm-aie"
    # In front, also when it is further behind: another version may have come before it.
    case $PATH in
        "$MLIR_AIE_INSTALL_DIR/bin:"*) ;;
        *) export PATH="$MLIR_AIE_INSTALL_DIR/bin:$PATH" ;;
    esac
    # Any folder that exists will do for the designs: the tools are checked here, the designs below.
    if ! _iron_report=$("$_iron_venv/bin/python3" "$_iron_worker" --toolchain-check --kernels-dir "$_iron_home"); then
        printf '%s\n' "$_iron_report" >&2
        _iron_error 'the environment is active, but incomplete: see "missing" above' \
            "remove $_iron_venv and source this again to reinstall it"
        return 1
    fi
    # In the sources: a library that was built there is not beside its designs.
    if [ "$_iron_worker" = "$_iron_home/worker.py" ] && [ -z "${GGML_HSA_IRON_DIR:-}" ]; then
        export GGML_HSA_IRON_DIR="$_iron_home"
    fi
    _iron_designs=${GGML_HSA_IRON_DIR:-${_iron_worker%/*}}/kernels
    if ! ls "$_iron_designs" 2>/dev/null | grep -q '\.py$'; then
        _iron_error "the tools of IRON $_iron_version are found, but there are no designs in $_iron_designs: no kernel can be compiled" \
            "put designs there, or name a folder of designs with: ggml-hsa-gen-kernels --kernels-dir DIR"
    elif [ ! -f "$_iron_designs/binary_ops.py" ]; then
        printf 'env_setup.sh: the tools of IRON %s are found; no kernel was compiled to try them: %s has no binary_ops.py\n' \
            "$_iron_version" "$_iron_designs"
    elif _iron_try; then
        printf 'env_setup.sh: IRON %s is ready\n' "$_iron_version"
    else
        return 1
    fi
}

# Compiles a small kernel for each generation, and not again before the tools or the place of the designs change.
_iron_try() {
    _iron_tried=$_iron_venv/ggml-hsa-trial
    if printf '%s\n' "$_iron_designs" "$_iron_report" | cmp -s - "$_iron_tried.txt"; then
        return 0
    fi
    printf 'env_setup.sh: compiling a kernel, to see whether these tools can\n'
    if ! "$_iron_venv/bin/python3" "$_iron_worker" --toolchain-check --trial --kernels-dir "$_iron_designs" \
        >"$_iron_tried.log" 2>&1; then
        grep 'no kernel can be compiled' "$_iron_tried.log" >&2 || :
        _iron_error "the environment is active, but does not compile: see $_iron_tried.log" \
            "remove $_iron_venv and source this again to reinstall it; the log belongs into a bug report"
        return 1
    fi
    # Without the note, the next time tries again.
    printf '%s\n' "$_iron_designs" "$_iron_report" >"$_iron_tried.txt" || :
}

# Says where this file is, in _iron_home, and the worker, in _iron_worker, if this file is being sourced.
_iron_locate() {
    if [ -n "${BASH_VERSION:-}" ] && [ "$_iron_file" = "$0" ] || [ "${ZSH_EVAL_CONTEXT:-}" = toplevel:shfunc ]; then
        _iron_error "this file has to be sourced, or its settings are lost: source $_iron_file"
        return 1
    fi
    # It may be a link to the file beside the requirements.
    _iron_home=$(readlink -f -- "$_iron_file" 2>/dev/null) || _iron_home=$_iron_file
    _iron_home=$(CDPATH='' cd -- "$(dirname -- "$_iron_home")" 2>/dev/null && pwd)
    if [ ! -f "$_iron_home/requirements.txt" ]; then
        _iron_error "cannot tell where this file is; in this shell, go to its folder first: cd FOLDER && . ./env_setup.sh"
        return 1
    fi
    # Beside this file in the sources, one folder below when installed.
    _iron_worker=$_iron_home/worker.py
    [ -f "$_iron_worker" ] || _iron_worker=$_iron_home/iron/worker.py
    if [ ! -f "$_iron_worker" ]; then
        _iron_error "there is no worker.py in $_iron_home or $_iron_home/iron; install ggml-hsa again"
        return 1
    fi
}

# zsh's form is not valid syntax elsewhere, hence eval. Shells that know neither need the file's folder to be the current one.
if [ -n "${BASH_VERSION:-}" ]; then
    _iron_file=${BASH_SOURCE:-}
elif [ -n "${ZSH_VERSION:-}" ]; then
    eval '_iron_file=${(%):-%x}'
else
    _iron_file=./env_setup.sh
fi
if _iron_locate && _iron_arguments "$@" && _iron_install && _iron_enter; then
    _iron_status=0
else
    # 3: help was shown.
    _iron_status=$?
    [ "$_iron_status" -ne 3 ] || _iron_status=0
fi
# Nothing of this stays in the shell but the environment.
unset -f _iron_help _iron_error _iron_arguments _iron_install _iron_enter _iron_try _iron_locate
unset _iron_version _iron_requirements _iron_venv _iron_wheels _iron_packages _iron_report _iron_file _iron_home _iron_worker
unset _iron_designs _iron_tried
eval "unset _iron_status; (exit $_iron_status)"

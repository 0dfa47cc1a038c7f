#!/bin/sh
# Prints the path of the Python that the environment is made from, or says in one sentence what is missing.
# Order: $PYTHON, then 3.13 (from the PATH, then from pyenv), then what else the PATH has from 3.11 on.
set -u

# A name on the PATH proves little: a pyenv shim exists for versions that are not switched on and then fails.
runs() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
makes_environments() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }
print_path() { "$1" -c 'import sys; print(sys.executable)'; }

if [ -n "${PYTHON:-}" ]; then
    runs "$PYTHON" || { echo "PYTHON=$PYTHON does not run or is older than 3.11." >&2; exit 1; }
    makes_environments "$PYTHON" || {
        echo "PYTHON=$PYTHON lacks the modules venv and ensurepip (Debian, Ubuntu: apt install python3-venv)." >&2
        exit 1
    }
    print_path "$PYTHON"
    exit 0
fi

incomplete=""
for candidate in \
    python3.13 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.13.*/bin/python3.13 \
    python3.12 python3.11 python3 /usr/bin/python3
do
    runs "$candidate" || continue
    if makes_environments "$candidate"; then
        print_path "$candidate"
        exit 0
    fi
    incomplete="$candidate"
done

if [ -n "$incomplete" ]; then
    echo "$incomplete lacks the modules venv and ensurepip (Debian, Ubuntu: apt install python3-venv)." >&2
else
    echo "No Python 3.11 or newer found: install one, or name it: make setup PYTHON=/path/to/python3." >&2
fi
exit 1

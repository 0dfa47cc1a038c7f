#!/bin/sh
# Runs tools/set_up.py with the environment's own Python if there is one, else with the best one on this machine.
set -eu
cd "$(dirname "$0")/.."
if [ -z "${PYTHON:-}" ] && .venv/bin/python -c '' >/dev/null 2>&1; then
    exec .venv/bin/python tools/set_up.py
fi
python="$(sh tools/find_python.sh)"
exec "$python" tools/set_up.py

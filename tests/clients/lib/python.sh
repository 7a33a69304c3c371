# Shared by the clients from PyPI: an environment of its own for each, outside the source tree, by requirements.txt.
here="$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)"

python_client() {
  local dir="$TIDEMARK_TEST_CLIENTS/$1"
  case "$2" in
    install)
      if ! cmp -s "$here/requirements.txt" "$dir/installed.txt"; then
        rm -rf "$dir"
        python3 -m venv "$dir"
        "$dir/bin/pip" install --quiet --disable-pip-version-check --only-binary=:all: -r "$here/requirements.txt" ||
          "$dir/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
        cp "$here/requirements.txt" "$dir/installed.txt"
      fi
      ;;
    run) exec env PYTHONPATH="$here/../lib" "$dir/bin/python" -B "$here/program.py" "$3" ;;
    snippet) exec "$dir/bin/python" "$3" ;;
  esac
}

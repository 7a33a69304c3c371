# Shared by the clients from npm: package.json and package-lock.json name the versions; node_modules is kept outside
# the source tree, and the programs are copied beside it, since Node looks for modules beside the program.
here="$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)"

node_client() {
  local dir="$TIDEMARK_TEST_CLIENTS/$1"
  case "$2" in
    install)
      mkdir -p "$dir"
      if ! cmp -s "$here/package-lock.json" "$dir/package-lock.json" || [ ! -f "$dir/complete" ]; then
        cp "$here/package.json" "$here/package-lock.json" "$dir/"
        (cd "$dir" && npm ci --no-audit --no-fund --ignore-scripts)
        : >"$dir/complete"
      fi
      cp "$here/program.mjs" "$here/../lib/verbs.mjs" "$dir/"
      ;;
    run) exec node "$dir/program.mjs" "$3" ;;
    snippet)
      cp "$3" "$dir/"
      exec node "$dir/$(basename "$3")"
      ;;
  esac
}

# Shared helpers of everything in scripts/. Source it; it changes no state by itself.
#
#   ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
#   . "$ROOT/scripts/lib.sh"
#
# Environment variables of the scripts begin with TIDEMARK_TEST_: the broker, which reads its settings from other
# TIDEMARK_ variables and refuses unknown ones, leaves these alone.
#
# Rules that all scripts keep: processes are started in the background by us, remembered by pid and ended
# by pid; every wait has a limit; what is fetched is kept in cache_dir, outside the source tree.

note() { printf '%s\n' "$*" >&2; }

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# Prints the comment block at the head of the script: the text of --help.
print_help() {
  awk 'NR == 1 { next } /^#/ { sub(/^# ?/, ""); print; next } { exit }' "$0"
}

# Where fetched things are kept: client environments, the jars of a peer broker.
cache_dir() {
  local dir="${TIDEMARK_TEST_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tidemark}"
  mkdir -p "$dir"
  printf '%s\n' "$dir"
}

now_ms() { date +%s%3N; }

# True when something accepts connections on 127.0.0.1:PORT.
port_answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Prints a loopback port that nobody listens on. Below the kernel's range for outgoing connections, so that
# no client of ours takes it between this check and the bind.
free_port() {
  local port tries
  for tries in $(seq 1 200); do
    port=$((15000 + RANDOM % 15000))
    if ! port_answers "$port"; then
      printf '%s\n' "$port"
      return 0
    fi
  done
  die "no free port found between 15000 and 30000 ($tries tries)"
}

# wait_port PORT SECONDS [PID]: until the port answers; fails early when the process PID has ended.
wait_port() {
  local port=$1 limit_ms=$(($2 * 1000)) pid=${3:-} start
  start=$(now_ms)
  until port_answers "$port"; do
    if [ -n "$pid" ] && ! kill -0 "$pid" 2>/dev/null; then return 1; fi
    if [ $(($(now_ms) - start)) -ge "$limit_ms" ]; then return 1; fi
    sleep 0.02
  done
}

# wait_exit PID SECONDS: until the process has ended. Works for children and for strangers.
wait_exit() {
  local pid=$1 limit_ms=$(($2 * 1000)) start
  start=$(now_ms)
  while kill -0 "$pid" 2>/dev/null; do
    if [ $(($(now_ms) - start)) -ge "$limit_ms" ]; then return 1; fi
    sleep 0.05
  done
}

# stop_pid PID [SECONDS]: SIGTERM, and SIGKILL when that was not enough.
stop_pid() {
  local pid=$1 seconds=${2:-10}
  kill -TERM "$pid" 2>/dev/null || return 0
  if ! wait_exit "$pid" "$seconds"; then
    kill -KILL "$pid" 2>/dev/null || true
    wait_exit "$pid" 5 || true
  fi
  wait "$pid" 2>/dev/null || true
}

# Fails, loudly, when a broker's log holds the word that a Rust panic prints.
no_panic_in() {
  local log
  for log in "$@"; do
    if [ -f "$log" ] && grep -q 'panicked' "$log"; then
      note "the broker panicked; from $log:"
      grep -n -A 3 'panicked' "$log" | awk 'NR <= 20' >&2
      return 1
    fi
  done
}

# on_exit COMMAND: to be done when the script ends, what was asked for last first; $exit_status is what it ends with, and is
# not 0 when a signal ends it. Not to be mixed with a trap on EXIT.
on_exit() {
  exit_steps=("$1" "${exit_steps[@]+"${exit_steps[@]}"}")
  trap 'exit 130' HUP INT TERM
  trap 'exit_status=$?; for exit_step in "${exit_steps[@]}"; do "$exit_step" || true; done; exit "$exit_status"' EXIT
}

# save_output NAME WHAT: from here on standard output also goes to docs/results/NAME.txt, below a head with WHAT, the
# commit, the date, the profile and the machine; it takes its place there when the script has succeeded. To be called in the
# folder of the source, by scripts that use on_exit.
save_output() {
  local commit changes dirty=""
  commit="$(git rev-parse HEAD)" && changes="$(git status --porcelain -- . ':!docs/results')" || die "--save needs git"
  [ -z "$changes" ] || dirty=" with uncommitted changes"
  mkdir -p docs/results
  saved_file="$PWD/docs/results/$1.txt"
  exec 3>&1
  exec > >(exec tee "$saved_file.new" 3>&-)
  saving_pid=$!
  on_exit keep_output
  printf '%s\ncommit %s%s\n%s\nprofile %s\n' "$2" "$commit" "$dirty" "$(date -u +%F)" "$(basename "$(profile_dir)")"
  [ -z "${TIDEMARK_TEST_BROKER_CMD:-}" ] || printf 'another broker: TIDEMARK_TEST_BROKER_CMD was set\n'
  printf '%s cores, %s\n\n' "$(nproc)" "$(sed -n '/^model name/ { s/.*: //p; q; }' /proc/cpuinfo)"
}

keep_output() {
  exec 1>&3 3>&-
  wait_exit "$saving_pid" 10 || true
  if [ "$exit_status" -eq 0 ]; then
    mv "$saved_file.new" "$saved_file"
  else
    rm -f "$saved_file.new"
    note "not saved: it did not succeed"
  fi
}

# The folder that cargo puts binaries of PROFILE (release or debug) into.
target_dir() { printf '%s/%s\n' "${CARGO_TARGET_DIR:-$ROOT/target}" "${1:-release}"; }

# Prints the python of an environment that has the pinned clients of tests/e2e/requirements.txt; made once and kept in
# cache_dir. Fails, having said why, when it cannot be made.
python_with_clients() {
  local requirements="$ROOT/tests/e2e/requirements.txt" version key environment
  have python3 || {
    note "python3 is missing"
    return 1
  }
  version="$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
  key="$(cat "$requirements" <(printf '%s' "$version") | cksum | cut -d' ' -f1)"
  environment="$(cache_dir)/python-$version-$key"
  if [ ! -f "$environment/complete" ]; then
    rm -rf "$environment"
    {
      timeout 120 python3 -m venv "$environment" &&
        timeout 300 "$environment/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
    } >&2 || return 1
    : >"$environment/complete"
  fi
  printf '%s\n' "$environment/bin/python"
}

# Builds what the proofs and benches run, in one profile: the broker and the programs on librdkafka.
# TIDEMARK_TEST_PROFILE=dev is for working on the programs themselves.
cargo_profile() { printf '%s\n' "${TIDEMARK_TEST_PROFILE:-release}"; }

profile_dir() { if [ "$(cargo_profile)" = dev ]; then target_dir debug; else target_dir "$(cargo_profile)"; fi; }

# librdkafka's build asks for a C++ compiler and does not need one.
if ! have c++ && ! have g++ && ! have clang++; then export CXX="$ROOT/scripts/cxx-unneeded"; fi

# TIDEMARK_TEST_BUILT=1 says that everything is built already.
build_examples() {
  [ -z "${TIDEMARK_TEST_BUILT:-}" ] || return 0
  note "building (minutes the first time: librdkafka is compiled from source)"
  (cd "$ROOT" && cargo build --quiet --locked --profile "$(cargo_profile)" -p tidemark-examples) ||
    die "the programs in examples/ did not build"
}

# The programs of crates/differential, which speak to Tidemark and to Kafka alike.
build_programs() {
  [ -z "${TIDEMARK_TEST_BUILT:-}" ] || return 0
  (cd "$ROOT" && cargo build --quiet --locked --profile "$(cargo_profile)" -p tidemark-differential) ||
    die "the programs in crates/differential did not build"
}

build_broker() {
  [ -z "${TIDEMARK_TEST_BUILT:-}" ] || return 0
  (cd "$ROOT" && cargo build --quiet --locked --profile "$(cargo_profile)" --bin tidemark) ||
    die "the broker did not build"
}

# run_tests SECONDS PACKAGE TEST ARGUMENTS...: runs tests of one test program, prints what they print, and counts them in
# tests_passed and tests_failed. That no test has the name, and no result within the time, are failures too.
tests_passed=0 tests_failed=0
run_tests() {
  local seconds=$1 options=(--locked --profile "$(cargo_profile)" -p "$2" --test "$3") said status=0 passed failed
  (cd "$ROOT" && cargo test --quiet "${options[@]}" --no-run >&2) || die "the test $3 of $2 does not compile"
  said="$(mktemp "${TMPDIR:-/tmp}/tidemark-tests.XXXXXX")"
  printf '%s %s %s:\n' "$2" "$3" "${*:4}"
  (cd "$ROOT" && timeout --kill-after=20 "$seconds" cargo test --quiet "${options[@]}" -- --nocapture --format=pretty "${@:4}") |
    tee "$said" | sed -u '/^$/d; /^running [0-9]* test/d; /^test result: /d' || status=$?
  passed="$(sed -n 's/^test result: .* \([0-9]*\) passed; .*/\1/p' "$said")"
  failed="$(sed -n 's/^test result: .* \([0-9]*\) failed; .*/\1/p' "$said")"
  rm -f "$said"
  if [ "$status" -ne 0 ] && [ "${failed:-0}" -eq 0 ]; then
    note "$2 $3 ${*:4}: ended with $status (124: not done within $seconds s)"
    failed=1
  elif [ "${passed:-0}" -eq 0 ] && [ "${failed:-0}" -eq 0 ]; then
    note "$2 $3 ${*:4}: no test has this name"
    failed=1
  fi
  tests_passed=$((tests_passed + ${passed:-0})) tests_failed=$((tests_failed + ${failed:-0}))
}

# The command that starts the broker under test, with {port} and {data} to be filled in. TIDEMARK_TEST_BROKER_CMD
# replaces it (it must end in the broker itself, not in a child of it: it is killed by pid).
broker_command() {
  if [ -n "${TIDEMARK_TEST_BROKER_CMD:-}" ]; then
    printf '%s\n' "$TIDEMARK_TEST_BROKER_CMD"
  else
    printf '%s\n' "$(profile_dir)/tidemark serve --listen 127.0.0.1:{port} --data-dir {data}"
  fi
}

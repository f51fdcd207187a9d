#!/usr/bin/env bash
# The one front door: installs what is missing, builds, tests, runs the demo.
# CI calls the same commands. Everything is written under build/; a second call of any
# command reinstalls and rebuilds nothing.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"

# Where the system's files are looked for; tests point it at a made-up system.
readonly system_root="${COLIBRI_SETUP_ROOT:-}"
readonly program="build/release/bin/colibri"

say() { printf 'setup: %s\n' "$*" >&2; }
fail() {
  printf 'setup: error: %s\n' "$*" >&2
  exit 2
}

usage() {
  cat <<'TEXT'
usage: ./setup.sh COMMAND [--no-install]

  build          build the program: build/release/bin/colibri
  demo           build, convert the demo model, run its batch with a quarter of the experts in memory
  test           build and run the quick tests
  test --all     the same, and sanitizer builds, fuzz replay, big tests and tests that need root
  help           this text

  --no-install   never install packages; list in one message all that is missing

Missing packages are installed with apt-get on Debian 12 and Ubuntu 24.04 (as root, or with sudo when
that asks for no password). Elsewhere, install them by hand and use --no-install.

environment:
  COLIBRI_TEST_SCALE   size of the tests that scale (default 1)
  COLIBRI_JOBS         compile and test jobs at a time (default: number of processors)
TEXT
}

# ---- What is needed -------------------------------------------------------------------------

# One line each: Debian package, then how to see that it is there: a command, or a header.
# The Boost package is chosen by system in boost_package.
requirements() {
  cat <<'TABLE'
g++                command  c++
cmake              command  cmake
ninja-build        command  ninja
pkg-config         command  pkg-config
ccache             optional ccache
libtbb-dev         header   tbb/version.h
libtbbbind-2-5     optional -
libhwloc-dev       header   hwloc.h
libnuma-dev        header   numa.h
libboost-dev       header   boost/asio/random_access_file.hpp
liburing-dev       header   liburing.h
libyaml-cpp-dev    header   yaml-cpp/yaml.h
nlohmann-json3-dev header   nlohmann/json.hpp
libcli11-dev       header   CLI/CLI.hpp
libpcre2-dev       header   pcre2.h
libutf8proc-dev    header   utf8proc.h
libxxhash-dev      header   xxhash.h
libssl-dev         header   openssl/evp.h
libspdlog-dev      header   spdlog/spdlog.h
libgtest-dev       header   gtest/gtest.h
libbenchmark-dev   header   benchmark/benchmark.h
valgrind           optional -
python3            optional -
TABLE
}

# "debian 12", "ubuntu 24.04", or what else /etc/os-release says.
system_name() {
  local release="${system_root}/etc/os-release"
  [[ -r "${release}" ]] || { echo "unknown"; return; }
  # shellcheck disable=SC1090  # the file differs by system
  (unset ID VERSION_ID; . "${release}"; echo "${ID:-unknown} ${VERSION_ID:-}")
}

# Boost.Asio files need 1.78 or newer; Debian 12's default is older.
boost_package() {
  case "$1" in
    "debian 12") echo "libboost1.81-dev" ;;
    "ubuntu 24.04") echo "libboost1.83-dev" ;;
    *) echo "libboost-dev (1.78 or newer)" ;;
  esac
}

have_header() {
  local folder
  local -a folders=("${system_root}/usr/include" "${system_root}/usr/local/include")
  folders+=("${system_root}/usr/include/$(uname -m)-linux-gnu")
  if [[ -z "${system_root}" ]]; then
    IFS=: read -r -a from_path <<<"${CPATH:-}:${CPLUS_INCLUDE_PATH:-}"
    folders+=("${from_path[@]}")
    IFS=':;' read -r -a prefixes <<<"${CMAKE_PREFIX_PATH:-}"
    for folder in "${prefixes[@]}"; do folders+=("${folder}/include"); done
  fi
  for folder in "${folders[@]}"; do
    [[ -n "${folder}" && -e "${folder}/$1" ]] && return 0
  done
  return 1
}

have_command() {
  if [[ "$1" == "c++" ]]; then
    command -v "${CXX:-c++}" >/dev/null
  elif [[ "$1" == "ninja" ]]; then
    command -v ninja >/dev/null || command -v ninja-build >/dev/null
  else
    command -v "$1" >/dev/null
  fi
}

# Names of packages whose command or header cannot be found, however it would have come here.
missing_parts() {
  local system="$1" package kind probe
  while read -r package kind probe; do
    case "${kind}" in
      command) have_command "${probe}" && continue ;;
      header) have_header "${probe}" && continue ;;
      optional) continue ;;
    esac
    [[ "${package}" == "libboost-dev" ]] && package="$(boost_package "${system}")"
    printf '%s\n' "${package}"
  done < <(requirements)
}

# Names of packages that dpkg does not have installed.
missing_packages() {
  local system="$1" package rest installed
  local -a wanted=()
  while read -r package rest; do
    [[ "${package}" == "libboost-dev" ]] && package="$(boost_package "${system}")"
    wanted+=("${package}")
  done < <(requirements)
  # dpkg-query fails when it does not know one of the names: that is an answer, not an error.
  # shellcheck disable=SC2016  # dpkg-query's own variables
  installed="$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null || true)"
  for package in "${wanted[@]}"; do
    grep -qxF "${package} installed" <<<"${installed}" || printf '%s\n' "${package}"
  done
}

joined() { tr '\n' ' ' <<<"$1" | sed 's/ *$//'; }

install_packages() {
  local -a packages=("$@") as_root=()
  if [[ "$(id -u)" != 0 ]]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    elif [[ -z "$(missing_parts "$(system_name)")" ]]; then
      say "not root: going on without packages that help but are not needed: ${packages[*]}"
      return
    else
      fail "packages are missing and installing them needs root. Run:
  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${packages[*]}
then call ./setup.sh again"
    fi
  fi
  say "installing them with apt-get"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q >&2 </dev/null ||
    say "apt-get update failed; trying with the package lists that are here"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends "${packages[@]}" >&2 </dev/null ||
    fail "apt-get could not install: ${packages[*]}. Its message is above"
}

ensure_requirements() {
  local install="$1" system missing known=yes
  system="$(system_name)"
  case "${system}" in
    "debian 12" | "ubuntu 24.04") ;;
    *) known=no ;;
  esac
  if [[ "${install}" == no || "${known}" == no ]]; then
    missing="$(missing_parts "${system}")"
    [[ -z "${missing}" ]] && return
    if [[ "${known}" == no ]]; then
      fail "cannot build, these are missing (names as in Debian 12): $(joined "${missing}").
Packages can be installed for you on Debian 12 and Ubuntu 24.04 only, and this system is: ${system}. \
Install them by hand, then call ./setup.sh again"
    fi
    fail "cannot build, these packages are missing: $(joined "${missing}"). Install them with:
  sudo apt-get install -y --no-install-recommends $(joined "${missing}")"
  fi
  missing="$(missing_packages "${system}")"
  [[ -z "${missing}" ]] && return
  say "missing packages: $(joined "${missing}")"
  local -a packages
  mapfile -t packages <<<"${missing}"
  install_packages "${packages[@]}"
}

# ---- Build ----------------------------------------------------------------------------------

parallel_jobs() { echo "${COLIBRI_JOBS:-$(nproc)}"; }

# build_preset PRESET [TARGET...]: configures when the presets changed, else leaves to ninja what has to be done.
build_preset() {
  local preset="$1"
  shift
  if [[ CMakePresets.json -nt "build/${preset}/build.ninja" ]]; then
    say "configuring build/${preset}"
    cmake --preset "${preset}" >&2
  fi
  cmake --build "build/${preset}" --parallel "$(parallel_jobs)" ${1:+--target "$@"} >&2
}

build_program() {
  build_preset release colibri
  say "built ${program}"
}

# ---- Demo -----------------------------------------------------------------------------------

readonly demo_checkpoint="configs/demo/checkpoint"
readonly demo_model="build/demo"
readonly demo_results="build/demo-results.jsonl"
readonly -a demo_shown=(verse-01 play-27 word-37 poem-51 code-57)

# Whether the container is complete, newer than all it was made from, and readable by this program.
demo_model_is_current() {
  [[ -e "${demo_model}/manifest.json" ]] || return 1
  [[ -z "$(find "${demo_checkpoint}" -newer "${demo_model}/manifest.json" -print -quit)" ]] || return 1
  "${program}" inspect "${demo_model}" >/dev/null 2>&1
}

# The string value of a field of a JSON line, with the escapes of JSON made visible text.
field() {
  local raw
  raw="$(sed -n 's/.*"'"$2"'": *"\(\([^"\\]\|\\.\)*\)".*/\1/p' <<<"$1" | sed 's/\\"/"/g; s/\\\//\//g')"
  printf '%b' "${raw}"
}

# A few prompts of the job, each followed by what the model wrote.
print_answers() {
  local id prompt answer
  for id in "${demo_shown[@]}"; do
    prompt="$(grep -m 1 -F "\"${id}\"" configs/demo/prompts.jsonl)"
    answer="$(grep -m 1 -F "\"${id}\"" "${demo_results}")"
    printf -- '\n---- %s\n%s\n  ==>\n%s\n' "${id}" "$(field "${prompt}" prompt)" "$(field "${answer}" text)"
  done
}

demo() {
  build_program
  if demo_model_is_current; then
    say "using the converted model in ${demo_model}"
  else
    "${program}" convert "${demo_checkpoint}" "${demo_model}" --weights auto --force
  fi
  # The demo always runs the whole job: results of an earlier run are not to be resumed.
  rm -f "${demo_results}" "${demo_results}".*
  "${program}" batch "${demo_model}" configs/demo/prompts.jsonl -o "${demo_results}" \
    --experts-memory 25%
  print_answers
  say "all results: ${demo_results}"
}

# ---- Tests ----------------------------------------------------------------------------------

tests_total=0
tests_failed=0
runs_failed=()

# run_tests PRESET NAME CTEST_ARGUMENT...: one ctest run, whose closing line is counted.
run_tests() {
  local preset="$1" name="$2"
  shift 2
  local folder="build/${preset}" log status=0 closing
  log="${folder}/ctest-${name}.log"
  say "tests: ${name} (${preset})"
  local -a under=()
  # The address layout that thread sanitizer expects is not that of every kernel.
  if [[ "${preset}" == tsan ]] && setarch "$(uname -m)" -R true 2>/dev/null; then
    under=(setarch "$(uname -m)" -R)
  fi
  "${under[@]}" ctest --test-dir "${folder}" --output-on-failure --no-tests=ignore "$@" 2>&1 </dev/null |
    tee "${log}" || status=$?
  closing="$(sed -n 's/.*tests passed, \([0-9]*\) tests\{0,1\} failed out of \([0-9]*\).*/\1 \2/p' "${log}")"
  if [[ -n "${closing}" ]]; then
    tests_failed=$((tests_failed + ${closing% *}))
    tests_total=$((tests_total + ${closing#* }))
  fi
  if [[ "${status}" != 0 ]]; then
    runs_failed+=("${name}")
  fi
  report_skipped "${folder}"
}

# Says which tests left something out and why, as GoogleTest logged it.
report_skipped() {
  local log="$1/Testing/Temporary/LastTest.log"
  [[ -r "${log}" ]] || return 0
  { grep -A1 ': Skipped$' "${log}" || true; } | { grep -v -e ': Skipped$' -e '^--$' || true; } | sort | uniq -c |
    sed 's/^ *\([0-9]*\) /setup: skipped \1 time(s): /' >&2
}

# The last line, in ctest's words, over all runs; the status is 1 unless every test passed.
close_tests() {
  local passed=$((tests_total - tests_failed)) percent=0
  if ((${#runs_failed[@]} > 0)); then
    say "runs with failures: ${runs_failed[*]}"
  fi
  if ((tests_total > 0)); then
    percent=$((passed * 100 / tests_total))
  fi
  printf '\n%d%% tests passed, %d tests failed out of %d\n' "${percent}" "${tests_failed}" "${tests_total}"
  ((tests_total > 0 && ${#runs_failed[@]} == 0))
}

run_quick_tests() {
  build_preset release
  run_tests release quick -L '^quick$' -j 2
}

run_all_tests() {
  export ASAN_OPTIONS="detect_leaks=1:detect_stack_use_after_return=1:allocator_may_return_null=1:strict_string_checks=1"
  export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
  export TSAN_OPTIONS="suppressions=${PWD}/tests/tsan.supp:halt_on_error=0:second_deadlock_stack=1"
  export COLIBRI_TEST_SCALE="${COLIBRI_TEST_SCALE:-1}"
  run_quick_tests
  # One at a time: these measure memory, or fill it.
  run_tests release big -L '^big$' -j 1
  run_tests release root -L '^root$' -j 1
  build_preset asan colibri_sanitized_tests
  # What the labels say: tests/CMakeLists.txt.
  run_tests asan address+undefined -L '^quick$' -LE '^(not-sanitized|memory-elsewhere)$' -j 2
  run_tests asan address+undefined-soak -L '^soak$' -j 1
  run_tests asan fuzz -L '^fuzz$' -j 2
  build_preset tsan colibri_sanitized_tests
  run_tests tsan thread -L '^quick$' -LE '^(not-sanitized|single-thread|threads-elsewhere)$' -j 2
  run_tests tsan thread-soak -L '^soak$' -j 1
}

# ---- Command line ---------------------------------------------------------------------------

main() {
  local command="${1:-}" install=yes all=no argument
  [[ $# -gt 0 ]] && shift
  for argument in "$@"; do
    case "${command} ${argument}" in
      *" --no-install") install=no ;;
      "test --all") all=yes ;;
      *) fail "unknown argument for ${command}: ${argument}. See ./setup.sh help" ;;
    esac
  done
  case "${command}" in
    help | -h | --help) usage ;;
    build)
      ensure_requirements "${install}"
      build_program
      ;;
    demo)
      ensure_requirements "${install}"
      demo
      ;;
    test)
      ensure_requirements "${install}"
      if [[ "${all}" == yes ]]; then run_all_tests; else run_quick_tests; fi
      close_tests
      ;;
    "")
      usage >&2
      exit 2
      ;;
    *) fail "unknown command: ${command}. Commands are: build, demo, test, help" ;;
  esac
}

main "$@"

#!/bin/sh
# Build every fuzz target with libFuzzer, ASan and UBSan (clang; another: CXX=...) and run each for SECONDS on one core:
#   run.sh [SECONDS [NAME...]]       run.sh 600 onnx tensor_file
# Seeds are in corpus/NAME; what is found on the way stays in build/fuzz, inputs that crash in build/fuzz/NAME.crash-*.
set -eu
seconds=${1:-600}
[ $# -gt 0 ] && shift
cd "$(dirname "$0")/../../.."
fuzz=tests/native/fuzz
native=device_runtime/native
built=build/fuzz
mkdir -p "$built/objects"
flags="-std=c++17 -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
  -D_GLIBCXX_ASSERTIONS -Wno-deprecated-declarations -Wall -Wextra -Wpedantic -Wshadow -Werror -I$native/src -I$native/include"
CXX=${CXX:-clang++-19}

sources=$(ls "$native"/src/*/*.cpp "$fuzz"/*_graph.cpp | grep -v /src/phone/)
objects=$(for source in $sources; do echo "$built/objects/$(echo "${source%.cpp}" | tr / _).o"; done)
export CXX flags built
# shellcheck disable=SC2016
printf '%s\n' $sources | xargs -P "$(nproc)" -I SOURCE sh -c '
  $CXX $flags -fsanitize=fuzzer-no-link -c SOURCE -o "$built/objects/$(echo SOURCE | sed "s/\.cpp$//" | tr / _).o"'

[ $# -gt 0 ] || set -- $(ls "$fuzz" | sed -n 's/^fuzz_\(.*\)\.cpp$/\1/p')
TMPDIR=$(mktemp -d)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
for name in "$@"; do
  echo "$name: $seconds s"
  # shellcheck disable=SC2086
  $CXX $flags -fsanitize=fuzzer "$fuzz/fuzz_$name.cpp" $objects -pthread -o "$built/fuzz_$name"
  mkdir -p "$built/corpus/$name"
  "$built/fuzz_$name" -max_total_time="$seconds" -max_len=16384 -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
    -verbosity=1 -artifact_prefix="$built/$name." "$built/corpus/$name" "$fuzz/corpus/$name" >"$built/$name.log" 2>&1 ||
    { tail -40 "$built/$name.log"; echo "$name: FAILED, see $built/$name.log" >&2; exit 1; }
  tail -8 "$built/$name.log"
done

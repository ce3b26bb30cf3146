#!/bin/sh
# In zig's place while `make sanitize` runs: the same sources, warnings and exports, by Debian's clang under
# $PHONOGRAD_SANITIZE. Zig's own flags for the target, for size and for speed are dropped.
[ "$1" = build-obj ] && exec "$PHONOGRAD_ZIG" "$@" # a source in Zig, which the sanitizers do not watch
shift # c++
for argument; do
  shift
  case $argument in
    -target | x86_64-linux-gnu.* | -mcpu=* | -O3 | -g0 | -s) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
case " $* " in
  *" -shared "*) set -- "$@" -shared-libsan ;; # a library shares the runtime that Python was started with
esac
# GCC 12's own std::stable_sort calls what it deprecates.
exec $CLANG "$@" -O1 -g -fno-omit-frame-pointer -D_GLIBCXX_ASSERTIONS -Wno-deprecated-declarations \
  -fsanitize="$PHONOGRAD_SANITIZE" -fno-sanitize-recover=all

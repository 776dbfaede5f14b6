#!/usr/bin/env bash
# Builds all targets in the image of OSS-Fuzz, which sets SRC and OUT. Each gets its seeds, its
# dictionary and its options.
set -euo pipefail
cd "$SRC/project"
# The corpus of a target may be empty.
shopt -s nullglob

cargo fuzz build -O --debug-assertions
host=$(rustc -vV | sed -n 's/^host: //p')
max_len=$(sed -n 's/^readonly MAX_LEN=//p' fuzz/run)
for target in $(cargo fuzz list); do
    cp "${CARGO_TARGET_DIR:-fuzz/target}/$host/release/$target" "$OUT/"
    zip -q -j "$OUT/${target}_seed_corpus.zip" "fuzz/seeds/$target/"* "fuzz/corpus/$target/"*
    dictionary=codec
    if [[ $target == challenge ]]; then dictionary=challenge; fi
    cp "fuzz/dictionaries/$dictionary.dict" "$OUT/$target.dict"
    printf '[libfuzzer]\nmax_len = %s\n' "$max_len" >"$OUT/$target.options"
done

# Sourced before cargo-fuzz: the release profile of the workspace is made for small programs, and a fuzzer has to be fast.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=3 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
  CARGO_PROFILE_RELEASE_STRIP=none

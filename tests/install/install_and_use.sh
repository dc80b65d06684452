#!/bin/bash
# Installs a build into a folder of its own, moves it, and uses it from there: an outside project builds
# against it, through find_package and through pkg-config, and Python imports its modules.
# Usage: install_and_use.sh BUILD_DIR PYTHON VERSION
source "$(dirname "$0")/use.sh"
build=$1
python=$2
version=$3

cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/tree"  # nothing in it may remember where it was installed
tree=$work/tree
library=$(find "$tree" -name 'libtutti.so')
lib=$(dirname "$library")

for file in include/tutti/tutti.hpp include/tutti/tutti.h bin/tutti; do
  [ -e "$tree/$file" ] || fail "$file was not installed"
done
[ -z "$(find "$tree/include" -type f -not -path '*/include/tutti/*')" ] ||
  fail "headers outside include/tutti were installed"
readelf -d "$library" >"$work/dynamic"
grep -q 'SONAME.*libtutti\.so\.[0-9]' "$work/dynamic" || fail "libtutti.so has no soname"

# Only v1 of tutti, tutti::train, tutti::plan and tutti::trace, and the C API, are promised to anybody. (typeinfo and vtables print with a prefix.)
nm -D --defined-only "$library" >"$work/symbols"
grep -q ' T tutti_all_reduce$' "$work/symbols" || fail "the C API is not visible"
prefix='^(typeinfo for |typeinfo name for |vtable for )?tutti::'
cut -d' ' -f3- "$work/symbols" | c++filt >"$work/names"
grep -q '^tutti::v1::Group::create' "$work/names" || fail "the C++ API is not visible"
breach=$(grep -E "$prefix" "$work/names" | grep -vE "${prefix}((exchange|pipeline|plan|trace|train)::)?v1::" || true)
[ -z "$breach" ] || fail "these are visible and should not be: $breach"

# Torch's headers take long to compile: that they are there and can be linked against has to do.
libtorch=OFF
[ -z "$(find "$tree" -name tutti-libtorch-targets.cmake)" ] || libtorch=ON
cmake -S "$here/outside" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$tree" -Dwanted_version="$version" \
  -DOUTSIDE_LIBTORCH=$libtorch >"$work/configured" ||
  fail "find_package: $(cat "$work/configured")"
cmake --build "$work/cmake" >/dev/null
expect '1 rank: 1 2 3' "$work/cmake/outside_cpp"
expect '1 rank: 1 2 3' "$work/cmake/outside_c"
if [ $libtorch = ON ]; then
  expect '1 rank: 1 2 3' "$work/cmake/outside_libtorch"
  "$work/cmake/outside_trainer" --help >"$work/help" && grep -q -- --zero-stage "$work/help" ||
    fail "a program with tutti::trainer does not run"
  [ -e "$tree/include/tutti/libtorch/trainer.hpp" ] || fail "tutti/libtorch/trainer.hpp was not installed"
  [ -e "$tree/include/tutti/libtorch.hpp" ] || fail "tutti/libtorch.hpp was not installed"
fi

# Whoever forgets -std=c++20 is told so, whichever header comes first.
for header in $(cd "$tree/include" && find tutti -name '*.hpp' -not -path '*libtorch*'); do
  if echo "#include <$header>" | ${CXX:-c++} -std=c++17 -I"$tree/include" -E -x c++ - >/dev/null 2>"$work/complaint"; then
    fail "$header takes C++17"
  fi
  grep -q 'tutti needs C++20' "$work/complaint" || fail "$header says of C++17: $(head -3 "$work/complaint")"
done

export PKG_CONFIG_PATH=$lib/pkgconfig
${CXX:-c++} -std=c++20 "$here/outside/main.cpp" $(pkg-config --cflags --libs tutti) \
  -o "$work/by_pkg_config"
expect '1 rank: 1 2 3' env LD_LIBRARY_PATH="$lib" "$work/by_pkg_config"
# As the README says, for a library that the loader does not know of.
${CXX:-c++} -std=c++20 "$here/outside/main.cpp" $(pkg-config --cflags --libs tutti) \
  -Wl,-rpath,"$(pkg-config --variable=libdir tutti)" -o "$work/by_rpath"
expect '1 rank: 1 2 3' "$work/by_rpath"
${CC:-cc} -std=c99 -pedantic -Wall -Wextra -Werror "$here/outside/main.c" \
  $(pkg-config --cflags --libs tutti) -o "$work/c_by_pkg_config"
expect '1 rank: 1 2 3' env LD_LIBRARY_PATH="$lib" "$work/c_by_pkg_config"

for program in "$build"/bin/peer_* "$build"/bin/pretrain_gpt; do
  [ ! -e "$program" ] || [ -e "$tree/bin/${program##*/}" ] || fail "${program##*/} was not installed"
done
if [ -e "$build/python" ]; then
  modules=$(cd "$build/python" && echo *)
  use_modules "$python" "$(dirname "$(find "$tree" -path '*/tutti/py.typed')")/.." $modules
fi

"$tree/bin/tutti" run -n 2 "$work/cmake/outside_c" >"$work/two" ||
  fail "the installed tutti run failed"
[ "$(grep -c '2 rank: 2 4 6' "$work/two")" = 2 ] || fail "two ranks said: $(cat "$work/two")"
echo "installed, moved, found by CMake and by pkg-config, used from C++, C and Python"

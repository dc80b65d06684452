#!/bin/bash
# Packs a build as scripts/package does, unpacks the packages into an empty root, and uses what is there: the
# command, a program in C, the Python modules; then the wheel, installed into an empty folder.
# Usage: packages.sh BUILD_DIR PYTHON VERSION
source "$(dirname "$0")/use.sh"
build=$1
python=$2
version=$3
package=$here/../../scripts/package
command -v dpkg-shlibdeps >/dev/null || { echo "skipped: there is no dpkg-dev"; exit 77; }

# The others need torch, among whose symbols dpkg-shlibdeps searches for seconds.
"$package" deb --from "$build" --only tutti,python -o "$work/deb" >/dev/null
for name in tutti python3-tutti; do
  file=$(echo "$work/deb/${name}_$version"_*.deb)
  dpkg-deb -x "$file" "$work/root"
  dpkg-deb -f "$file" Depends >"$work/depends_$name"
done
for needed in libc6 libfmt libhwloc libssl libstdc++6 zlib1g; do
  grep -q "\b$needed" "$work/depends_tutti" || fail "the package does not ask for $needed: $(cat "$work/depends_tutti")"
done
grep -qF "tutti (= $version)" "$work/depends_python3-tutti" || fail "the module does not ask for its library"

root=$work/root/usr
expect "tutti $version" "$root/bin/tutti" --version
lib=$(dirname "$(find "$root" -name libtutti.so)")
export PKG_CONFIG_PATH=$lib/pkgconfig
${CC:-cc} -std=c99 "$here/outside/main.c" $(pkg-config --cflags --libs tutti) -o "$work/program"
expect '1 rank: 1 2 3' env LD_LIBRARY_PATH="$lib" "$work/program"
use_modules "$python" "$(dirname "$(find "$root" -path '*/tutti/py.typed')")/.." tutti

PYTHON=$python "$package" wheel --from "$build" -o "$work/wheel" >/dev/null
"$python" -m pip --disable-pip-version-check install --quiet --no-index --no-deps --target "$work/site" "$work"/wheel/*.whl
use_modules "$python" "$work/site" $(cd "$build/python" && echo *)
echo "packed, unpacked and used: $(ls "$work/deb" "$work/wheel" | tr '\n' ' ')"

#!/usr/bin/env bash
# Installs the programs that the tests need besides Go: redis-server, prometheus with
# promtool, a C compiler for the race detector, node with npm to build the page, and a
# browser to test it. It does nothing if all of them are present.
#
# redis-server, prometheus and chromium-headless-shell are unpacked into a folder of the user
# instead of being installed: Debian's packages of the first two would start services, and
# unpacking does not need root. The Makefile adds that folder to PATH.
set -euo pipefail

deps=${XDG_CACHE_HOME:-$HOME/.cache}/headgate-test
PATH=$deps/bin:$PATH

has() { command -v "$1" >/dev/null; }

has_redis() { [[ $(redis-server --version 2>/dev/null) =~ v=([0-9]+)\. ]] && ((BASH_REMATCH[1] >= 7)); }
has_prometheus() { has prometheus && has promtool; }
has_compiler() { [ "$(uname -s)" != Linux ] || has "$(go env CC)"; }
has_node() {
  has npm && has node &&
    node -e 'const [major, minor] = process.versions.node.split(".").map(Number); process.exit(major > 20 || (major === 20 && minor >= 19) ? 0 : 1)'
}
has_browser() {
  has chromium-headless-shell || has chromium || has chromium-browser || has google-chrome ||
    [ -x "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" ]
}

# missing prints the programs that the tests need and that are not on this machine.
missing() {
  has_redis || echo "redis-server 7.0 or later"
  has_prometheus || echo "prometheus and promtool"
  has_compiler || echo "a C compiler ($(go env CC)), for the race detector"
  has_node || echo "node 20.19 or later, with npm"
  has_browser || echo "chromium or google-chrome"
}

# apt VERB... runs apt-get with package lists in a separate folder, so that it does not
# need root.
apt() {
  apt-get -qq -o Dir::State::Lists="$scratch/lists" -o Dir::Cache="$scratch" -o APT::Sandbox::User="$(id -un)" "$@"
}

# unpack [OPTION] PACKAGE... downloads packages and unpacks their files into $deps/root.
unpack() {
  mkdir -p "$deps/bin" "$deps/root"
  (cd "$scratch" && apt download "$@") || return
  for package in "$scratch"/*.deb; do
    dpkg -x "$package" "$deps/root"
    rm "$package"
  done
}

# unpack_redis unpacks the package of Redis's tools and the libraries that it needs. Tools
# and server are one program, and this package starts no service.
unpack_redis() {
  local packages
  packages=$(apt --simulate --no-install-recommends install redis-tools | awk '/^Inst / {print $2}')
  # shellcheck disable=SC2086 # one word a package
  unpack $(printf '%s\n' redis-tools $packages | sort -u)
  ln -sf redis-check-rdb "$deps/root/usr/bin/redis-server"
  local libraries
  libraries=$(printf ':%s' "$deps"/root{,/usr}/lib/*-linux-gnu*)
  cat >"$deps/bin/redis-server" <<END
#!/bin/sh
LD_LIBRARY_PATH="${libraries#:}" exec "$deps/root/usr/bin/redis-server" "\$@"
END
  chmod +x "$deps/bin/redis-server"
}

unpack_prometheus() {
  unpack prometheus
  ln -sf ../root/usr/bin/prometheus ../root/usr/bin/promtool "$deps/bin/"
}

# unpack_headless_shell unpacks a Chromium without windows beside an installed one, whose
# libraries it shares. Tests of the page need half as much of the processor with it. They also
# run without it, so it is no error if this distribution does not have it.
unpack_headless_shell() {
  # The installed chromium may be of another version than the packages to download.
  unpack -o Dir::State::status=/dev/null chromium-headless-shell chromium-common || return 0
  local shell=../root/usr/lib/chromium/chromium-headless-shell
  ! ldd "$deps/bin/$shell" | grep 'not found' || return 0
  ln -sf "$shell" "$deps/bin/"
}

[ -n "$(missing)" ] || exit 0

hint=""
if has apt-get; then
  scratch=$(mktemp -d)
  trap 'rm -r "$scratch"' EXIT
  mkdir -p "$scratch"/{lists,archives}/partial
  apt update
  has_redis || unpack_redis
  has_prometheus || unpack_prometheus
  packages=()
  has_compiler || packages+=(gcc libc6-dev)
  has_node || packages+=(nodejs npm)
  has_browser || packages+=(chromium)
  if [ "${#packages[@]}" -gt 0 ] && [ "$(id -u)" -eq 0 ]; then
    DEBIAN_FRONTEND=noninteractive apt install -y --no-install-recommends "${packages[@]}"
  elif [ "${#packages[@]}" -gt 0 ]; then
    hint="Only root can install these packages: apt-get install --no-install-recommends ${packages[*]}"
  fi
  has chromium-headless-shell || ! has chromium || unpack_headless_shell
elif has brew; then
  packages=()
  has_redis || packages+=(redis)
  has_prometheus || packages+=(prometheus)
  has_node || packages+=(node)
  [ "${#packages[@]}" -eq 0 ] || brew install "${packages[@]}"
fi

if [ -n "$(missing)" ]; then
  {
    echo "install-test-deps: the tests need programs that this script cannot install here. Put these into PATH:"
    missing | sed 's/^/  /'
    [ -z "$hint" ] || echo "$hint"
  } >&2
  exit 1
fi

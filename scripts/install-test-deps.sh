#!/usr/bin/env bash
# Installs what the tests need beside Go: a redis-server, 7.0 or later, a C
# compiler for the race detector, prometheus with its promtool, node and npm, with
# which the page is built, and a Chromium to look at it with. Does nothing when
# they are there.
set -euo pipefail

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "$1 needs root, and there is no sudo"
  fi
}

fail() {
  echo "install-test-deps: $1" >&2
  exit 1
}

# redis_major prints the first number of the installed version; 0: none.
redis_major() {
  local version
  version=$(redis-server --version 2>/dev/null) || true
  [[ $version =~ v=([0-9]+)\. ]] && echo "${BASH_REMATCH[1]}" || echo 0
}

compiler() {
  [ "$(uname -s)" != Linux ] || command -v "$(go env CC)" >/dev/null
}

apt_packages=() brew_packages=()
if [ "$(redis_major)" -lt 7 ]; then
  apt_packages+=(redis-server)
  brew_packages+=(redis)
fi
compiler || apt_packages+=(gcc libc6-dev)
metrics() { command -v prometheus >/dev/null && command -v promtool >/dev/null; }
if ! metrics; then
  apt_packages+=(prometheus)
  brew_packages+=(prometheus)
fi
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  apt_packages+=(nodejs npm)
  brew_packages+=(node)
fi
browser() {
  command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ||
    [ -x "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" ]
}
browser || apt_packages+=(chromium)
[ "${#apt_packages[@]}" -gt 0 ] || exit 0

if command -v apt-get >/dev/null; then
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${apt_packages[@]}"
elif [ "$(uname -s)" = Darwin ] && command -v brew >/dev/null; then
  brew install "${brew_packages[@]}"
else
  fail "no apt-get and no brew here: please put a redis-server, 7.0 or later, a C compiler, prometheus, promtool, node, npm and chromium into PATH"
fi

[ "$(redis_major)" -ge 7 ] ||
  fail "the tests need redis-server 7.0 or later in PATH; found: $(redis-server --version 2>&1 || true)"
compiler || fail "the race detector needs a C compiler, $(go env CC)"
metrics || fail "the tests need prometheus and promtool in PATH"
command -v npm >/dev/null || fail "the page is built with node and npm, 20.19 or later"

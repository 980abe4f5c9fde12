#!/usr/bin/env bash
# Installs the Debian packages that are missing, as root or through sudo, and says which.
# Usage: tools/install_packages.sh build|lint|browser ...
set -euo pipefail

build=(g++ cmake ninja-build ccache pkg-config
       libhwy-dev libdnnl-dev nlohmann-json3-dev libsimdjson-dev libutf8proc-dev
       libcli11-dev libfmt-dev libxxhash-dev
       libboost1.81-dev libspdlog-dev prometheus-cpp-dev libgtest-dev libgmock-dev)
lint=(clang-format-14 clang-tidy-14)
# The test of the web page, and the environment of the client tests.
browser=(chromium chromium-driver python3 python3-selenium python3-venv)

wanted=()
for group in "$@"; do
  case "$group" in
    build) wanted+=("${build[@]}") ;;
    lint) wanted+=("${lint[@]}") ;;
    browser) wanted+=("${browser[@]}") ;;
    *) echo "install_packages.sh: '$group' is not accepted; expected build, lint or browser" >&2; exit 2 ;;
  esac
done

missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
    missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "These packages are missing and neither root nor sudo is at hand: ${missing[*]}" >&2
    exit 1
  }
  root=(sudo)
fi
echo "Installing Debian packages: ${missing[*]}"
"${root[@]}" apt-get update -qq
"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
  "${missing[@]}" >/dev/null

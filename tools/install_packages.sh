#!/usr/bin/env bash
# Installs the Debian packages that are missing, as root or through sudo, and says which.
# Usage: tools/install_packages.sh build|lint|browser|cuda ...
# cuda: FlashInfer's headers from PyPI, into build/flashinfer.
set -euo pipefail

build=(g++ cmake ninja-build ccache pkg-config
       libhwy-dev libdnnl-dev nlohmann-json3-dev libsimdjson-dev libutf8proc-dev
       libcli11-dev libfmt-dev libxxhash-dev
       libboost1.81-dev libspdlog-dev prometheus-cpp-dev libgtest-dev libgmock-dev)
lint=(clang-format-14 clang-tidy-14)
# The test of the web page, and the environment of the client tests.
browser=(chromium chromium-driver python3 python3-selenium python3-venv)

# Headers and the CCCL that they are written for; nothing of it runs at build time.
flashinfer=0.7.4
install_flashinfer() {
  local to=build/flashinfer
  [ "$(cat $to/version 2>/dev/null)" = "$flashinfer" ] && return
  echo "Installing from PyPI: flashinfer-python $flashinfer (headers)"
  local wheel
  wheel=$(mktemp -d)
  python3 -m pip download --quiet --disable-pip-version-check --no-deps \
    --dest "$wheel" "flashinfer-python==$flashinfer"
  rm -rf $to
  mkdir -p $to
  python3 - "$wheel"/*.whl $to <<'PYTHON'
import sys, zipfile

wheel = zipfile.ZipFile(sys.argv[1])
wanted = ("flashinfer/data/include/", "flashinfer/data/cccl/")
names = [name for name in wheel.namelist() if name.startswith(wanted) or "LICENSE" in name]
wheel.extractall(sys.argv[2], names)
PYTHON
  rm -rf "$wheel"
  echo "$flashinfer" >$to/version
}

wanted=()
for group in "$@"; do
  case "$group" in
    build) wanted+=("${build[@]}") ;;
    lint) wanted+=("${lint[@]}") ;;
    browser) wanted+=("${browser[@]}") ;;
    cuda) wanted+=(python3 python3-pip) ;;
    *) echo "install_packages.sh: '$group' is not accepted; expected build, lint, browser or cuda" >&2; exit 2 ;;
  esac
done

install_debian() {
  missing=()
  for package in "${wanted[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return

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
}

cd "$(dirname "$0")/.."
install_debian
for group in "$@"; do
  if [ "$group" = cuda ]; then install_flashinfer; fi
done

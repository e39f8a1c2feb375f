# uncopy: three commands matter, `make demo`, `make check` while working on it, and `make test`.
PREFIX ?= /usr/local
CARGO ?= cargo
UNCOPY = target/release/uncopy

.PHONY: build bench demo check test full lint fmt clippy docs unit screens loom tsan soak programs torture numbers reproduce mutations fuzz deny install deb package uninstall clean

build:
	$(CARGO) build --release --locked -p uncopy -p uncopy-preload -p uncopy-profile -p uncopy-tcp-c

# What measures, for who works on uncopy: target/release/uncopy-bench. Not installed.
bench: build
	$(CARGO) build --release --locked -p uncopy-bench

# Builds, then shows the main job on bundled software; nothing else is installed.
demo: build
	@$(UNCOPY) demo

# What can be known in three minutes (two quiet cores, built before) with gcc and Rust and nothing else: fmt, clippy, the workspace's
# tests, the small programs of tests/process and tests/races. Installs nothing, and fetches only the crates of Cargo.lock that are not
# here yet. What needs something that is not here is skipped; the last lines say what, why, and how long each step took. What each
# step said stays in target/check/.
check:
	@tests/check

# Installs what the tests need where it is missing, runs everything (tests/all has the table). So nothing of it may be missing: a skip
# is a failure. Some twenty minutes on two cores; what each step said stays in target/all/.
test:
	scripts/install-test-deps
	tests/all

# The same, longer, and what is long and rare: all real programs, every call made to fail, known defects, threads under
# ThreadSanitizer, a quarter of an hour of load. Hours.
full:
	scripts/install-test-deps
	tests/all --full

# The Debian package in a clean Debian that systemd boots (a minute and a half, of which half is for fetching that), and containers.
package: deb
	NO_SKIPS=1 tests/package/run.sh
	NO_SKIPS=1 tests/container/run.sh

# What people see, of fixed input, written anew into crates/cli/screens and tools/bench/screens; `git diff` then shows what changed.
screens:
	@mkdir -p crates/cli/screens/help tools/bench/screens/help
	UPDATE_EXPECT=1 $(CARGO) test --locked -p uncopy -p uncopy-bench --bins screens

# Every order of the steps of threads that share a structure.
loom:
	RUSTFLAGS="--cfg loom" $(CARGO) test --locked --target-dir target/loom -p uncopy-ranges -p uncopy-kernel -p uncopy-space -p uncopy-tcp-shared -p uncopy-tcp-fast -p uncopy-log-share --lib loom_tests

# The same structures among real threads, under ThreadSanitizer. Needs a nightly compiler; not part of `make test`. Reports about
# std's and the harness's own reference counts do not count: they are not instrumented.
tsan:
	@mkdir -p target
	RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" TSAN_OPTIONS=exitcode=0 $(CARGO) +nightly test --locked \
		--target x86_64-unknown-linux-gnu --target-dir target/tsan -p uncopy-space --test threads >target/tsan.log 2>&1 \
		|| { cat target/tsan.log; exit 1; }
	@if grep "SUMMARY.* $(CURDIR)/" target/tsan.log; then cat target/tsan.log; exit 1; else echo "tsan: no race of ours"; fi

# What reads bytes of others, fed by libFuzzer, each target for so many seconds. Needs a C++ compiler.
SECONDS_EACH = 60
fuzz:
	fuzz/run --seconds $(SECONDS_EACH)

# Licenses, sources and duplicates of what is depended on. Needs cargo-deny (cargo install --locked cargo-deny).
deny:
	$(CARGO) deny --offline check licenses bans sources

# A quarter of an hour of load on redis, nginx and an echo server: what they hold at the end is what they held before.
soak: build
	tests/soak/soak.py

lint: fmt clippy docs

fmt:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

docs:
	# One after the other: the command and the library have one name, and so one directory.
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --exclude uncopy --no-deps --locked --quiet
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc -p uncopy --no-deps --locked --quiet

unit:
	UNCOPY_TEST_LIBRARY=$(CURDIR)/target/release/libuncopy.so $(CARGO) test --workspace --locked

# Real programs, plainly and under uncopy: what they compute must be the same. Installs them first.
programs: build
	scripts/install-test-deps
	tests/all --full servers consistency torture refused files steady-state idle jumps redis matrix

# Random scripts of operations, plainly and under uncopy, in four ways each; scripts that failed once come first.
SEEDS ?= 200
torture: build
	$(CARGO) build --release --locked -p uncopy-torture
	tests/torture/run --seeds $(SEEDS)

# All numbers of docs/numbers and of the README, measured here in an hour: most rows three times. Nothing of them is written by hand. (For less noise in the servers' rows:
# bench/apps/all.py --sizes 1K,64K,1M --rounds 5 --turns 10 --json >FILE, two hours; then uncopy-bench report --redraw --servers FILE, and --out and --readme as here.)
numbers: bench
	target/release/uncopy-bench report --minutes 60 --out docs/numbers --readme README.md

# Every figure of the papers whose mechanism is here, beside the paper's number: docs/papers.md. Hours; QUICK=1: some twenty minutes.
reproduce: bench
	bench/papers/reproduce.py $(if $(QUICK),--quick)

# Known defects put into a copy of the sources: each must be caught.
mutations:
	tests/mutations/run

# Where `make install` puts what is no program: manual pages, completions, documents, the rule for the device.
SHARE = $(DESTDIR)$(PREFIX)/share
RULES = $(DESTDIR)$(PREFIX)/lib/udev/rules.d

install: build
	install -D -m 755 $(UNCOPY) $(DESTDIR)$(PREFIX)/bin/uncopy
	install -D -m 755 target/release/libuncopy.so $(DESTDIR)$(PREFIX)/lib/uncopy/libuncopy.so
	install -D -m 755 target/release/libuncopy_profile.so $(DESTDIR)$(PREFIX)/lib/uncopy/libuncopy_profile.so
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib target/release/libuncopy_tcp.so target/release/libuncopy_tcp.a
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/include crates/tcp/c/include/uncopy_tcp.h
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	scripts/pkg-config-file $(PREFIX) >$(DESTDIR)$(PREFIX)/lib/pkgconfig/uncopy-tcp.pc
	rm -rf target/pages
	$(UNCOPY) __pages target/pages
	scripts/installed-docs target/pages/doc
	install -D -m 644 -t $(SHARE)/man/man1 target/pages/man/man1/*.1
	install -D -m 644 -t $(SHARE)/bash-completion/completions target/pages/bash-completion/completions/uncopy
	install -D -m 644 -t $(SHARE)/zsh/site-functions target/pages/zsh/vendor-completions/_uncopy
	install -D -m 644 -t $(SHARE)/fish/vendor_completions.d target/pages/fish/vendor_completions.d/uncopy.fish
	install -D -m 644 -t $(SHARE)/doc/uncopy target/pages/doc/*.md
	install -D -m 644 -t $(SHARE)/doc/uncopy/users target/pages/doc/users/*.md
	install -D -m 644 -t $(RULES) packaging/60-uncopy.rules
	@echo "For others than root: 'groupadd --system uncopy', 'udevadm control --reload', 'udevadm trigger --sysname-match=userfaultfd',"
	@echo "then 'usermod -aG uncopy USER', who logs in anew. 'uncopy doctor' says whether it works."

# A Debian package, in target/debian/.
deb: build
	scripts/make-deb

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/uncopy $(DESTDIR)$(PREFIX)/lib/uncopy/libuncopy.so $(DESTDIR)$(PREFIX)/lib/uncopy/libuncopy_profile.so
	rm -f $(DESTDIR)$(PREFIX)/lib/libuncopy_tcp.so $(DESTDIR)$(PREFIX)/lib/libuncopy_tcp.a $(DESTDIR)$(PREFIX)/include/uncopy_tcp.h \
		$(DESTDIR)$(PREFIX)/lib/pkgconfig/uncopy-tcp.pc
	rm -f $(SHARE)/man/man1/uncopy.1 $(SHARE)/man/man1/uncopy-*.1 $(SHARE)/bash-completion/completions/uncopy $(RULES)/60-uncopy.rules
	rm -f $(SHARE)/zsh/site-functions/_uncopy $(SHARE)/fish/vendor_completions.d/uncopy.fish
	rm -rf $(SHARE)/doc/uncopy
	-rmdir $(DESTDIR)$(PREFIX)/lib/uncopy

clean:
	$(CARGO) clean

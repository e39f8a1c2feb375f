# uncopy: two commands matter, `make demo` and `make test`.
PREFIX ?= /usr/local
CARGO ?= cargo
UNCOPY = target/release/uncopy

.PHONY: build demo test lint unit loom programs install uninstall clean

build:
	$(CARGO) build --release --locked -p uncopy -p uncopy-preload

# Builds, then shows the main job on bundled software; nothing else is installed.
demo: build
	@$(UNCOPY) demo

# Installs what the tests need where it is missing, runs everything.
test:
	scripts/install-test-deps
	$(MAKE) --no-print-directory lint build unit programs

# Every order of the steps of threads that share a structure.
loom:
	RUSTFLAGS="--cfg loom" $(CARGO) test --locked --target-dir target/loom -p uncopy-core -p uncopy-vm --lib loom_tests

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet

unit:
	UNCOPY_TEST_LIBRARY=$(CURDIR)/target/release/libuncopy.so $(CARGO) test --workspace --locked

# Real programs, plainly and under uncopy: what they compute must be the same.
programs: build
	tests/run-programs

install: build
	install -D -m 755 $(UNCOPY) $(DESTDIR)$(PREFIX)/bin/uncopy
	install -D -m 755 target/release/libuncopy.so $(DESTDIR)$(PREFIX)/lib/uncopy/libuncopy.so

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/uncopy $(DESTDIR)$(PREFIX)/lib/uncopy/libuncopy.so
	-rmdir $(DESTDIR)$(PREFIX)/lib/uncopy

clean:
	$(CARGO) clean

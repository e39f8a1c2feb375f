#!/bin/sh
exec cargo test --locked -p uncopy-tests --test security -- "$@"

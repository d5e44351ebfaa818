#!/usr/bin/env bash
# Runs another test, in the environment of this one.
exec "$@"

#!/usr/bin/env bash
# reader_test.sh WRITE_EVENTS READ_EVENTS PACKAGE...: TensorBoard's own reader finds in event files what was written.
set -euo pipefail
write=$1 read=$2
packages=$(cd "$(dirname "$3")" && pwd)

. tests/python311.sh
folder=$TEST_TMPDIR/events
"$write" "$folder"
# Nothing but the packages that are pinned, and nothing is written beside them.
"$python" -I -S -B "$read" "$packages" "$folder" "$folder"/events.out.tfevents.*

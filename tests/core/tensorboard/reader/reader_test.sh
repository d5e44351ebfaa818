#!/usr/bin/env bash
# reader_test.sh WRITE_EVENTS READ_EVENTS PACKAGE...: TensorBoard's own reader finds in event files what was written.
set -euo pipefail
write=$1 read=$2
packages=$(cd "$(dirname "$3")" && pwd)

# numpy's wheel is of this Python, whichever is the machine's python3.
python=$(command -v python3.11 || command -v python3)
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
  echo "needs Python 3.11, as Debian 12 has it; $python is $("$python" --version)"
  exit 1
}
folder=$TEST_TMPDIR/events
"$write" "$folder"
# Nothing but the packages that are pinned, and nothing is written beside them.
"$python" -I -S -B "$read" "$packages" "$folder" "$folder"/events.out.tfevents.*

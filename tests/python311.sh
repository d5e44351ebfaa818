# For tests, which source it: $python is Python 3.11, Debian 12's, of which wheels are, whichever is the machine's python3.
python=$(command -v python3.11 || command -v python3)
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
  echo "needs Python 3.11, as Debian 12 has it; $python is $("$python" --version)"
  exit 1
}

#!/bin/bash
# Instructions that a preloaded module adds to one statement: `make bench-instructions`. Takes the pg_config of a server
# that pgss_rs is installed for, and wants valgrind.
#
# Callgrind counts what a stand-alone backend executes for 100 statements and for 600; the difference over 500 is one
# statement's share, less the same without a module. The server's own query identifier is counted apart, and taken off
# where a module is at work. Counts repeat to a few instructions, whatever else the machine does.
set -euo pipefail
pg_config=${1:?usage: instructions.sh PG_CONFIG}
bin=$("$pg_config" --bindir)
command -v valgrind >/dev/null || { echo "instructions.sh: install valgrind first" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 777 "$work"
# Servers do not run as root.
as_server() { if [ "$(id -u)" = 0 ]; then sudo -u postgres "$@"; else "$@"; fi; }
as_server "$bin/initdb" -D "$work/data" -A trust -U postgres --no-locale -E UTF8 --no-sync >/dev/null

for n in 100 600; do
  { echo "PREPARE p AS SELECT now()"; for _ in $(seq $n); do echo "EXECUTE p"; done; } > "$work/prepared.$n"
  for _ in $(seq $n); do echo "SELECT now()"; done > "$work/now.$n"
  for i in $(seq $n); do echo "SELECT $i"; done > "$work/const.$n"
done

# count STATEMENTS NUMBER SETTING...: instructions of a whole backend
count() {
  local statements=$1 number=$2
  shift 2
  as_server bash -c 'cd "$1" && statements=$2 && shift 2 && valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" \
    < "$statements" 2>&1' - "$work" "$work/$statements.$number" \
    "$bin/postgres" --single -D "$work/data" -c fsync=off -c autovacuum=off "$@" postgres |
    awk '/Collected/ { print $4; found = 1 } END { exit !found }'
}
# one STATEMENTS SETTING...: instructions of one statement
one() {
  local statements=$1 few many
  shift
  few=$(count "$statements" 100 "$@")
  many=$(count "$statements" 600 "$@")
  echo $(((many - few) / 500))
}
ours="-c shared_preload_libraries=pgss_rs"
theirs="-c shared_preload_libraries=pg_stat_statements"
peer=""
[ -e "$("$pg_config" --pkglibdir)/pg_stat_statements.so" ] && peer=yes

echo "| statement | alone | query identifier | pg_stat_statements | pgss_rs | ratio | pgss_rs, \`sample_rate = 0\` | \`track = none\` |"
echo "|---|---|---|---|---|---|---|---|"
for statements in prepared now const; do
  alone=$(one $statements -c compute_query_id=off)
  identifier=$(($(one $statements -c compute_query_id=on) - alone))
  added=$(($(one $statements $ours) - alone - identifier))
  zero=$(($(one $statements $ours -c pgss_rs.sample_rate=0) - alone))
  none=$(($(one $statements $ours -c pgss_rs.track=none) - alone))
  other="" ratio=""
  if [ -n "$peer" ]; then
    other=+$(($(one $statements $theirs) - alone - identifier))
    ratio=$(awk -v a="$added" -v b="$other" 'BEGIN { printf "%.2f", a / b }')
  fi
  printf '| %s | %d | %+d | %s | %+d | %s | %+d | %+d |\n' \
    "$statements" "$alone" "$identifier" "$other" "$added" "$ratio" "$zero" "$none"
done

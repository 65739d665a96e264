#!/usr/bin/env bash
# `workbench gate` in CI, for the composite action and the GitLab template beside this file.
#
#   BASE, HEAD       commits to compare; HEAD is the one that is checked out where not said
#   PROJECT          the workspace's folder; the current one where not said
#   TIER, ARCH       as --tier and --arch; what the machine can, and sm_90a
#   CUBINS           a folder that is kept from run to run: compiled kernels
#   REPORTS          where gate.md is written; gate-reports
#   STRICT           false: "cannot tell" passes, with a warning. Otherwise it fails with exit code 5.
#
# This runs Python of the change that is tested: study.py, and variants when they are built.
# Read "What runs on the runner" in docs/gate.md before you give it a GPU or a secret.
set -uo pipefail
: "${BASE:?the commit to compare with}"
reports=${REPORTS:-gate-reports}
mkdir -p "$reports"
rm -f "$reports/gate.md" # that of an earlier run is not of this one
arguments=(gate "$BASE" "${HEAD:-HEAD}" --markdown --project "${PROJECT:-.}")
[ -n "${TIER:-}" ] && arguments+=(--tier "$TIER")
[ -n "${ARCH:-}" ] && arguments+=(--arch "$ARCH")
[ -n "${CUBINS:-}" ] && arguments+=(--cache "$CUBINS")

workbench "${arguments[@]}" >"$reports/gate.md"
code=$?
if [ ! -s "$reports/gate.md" ] && { [ "$code" = 0 ] || [ "$code" = 5 ]; }; then
    echo "error: workbench gate ended with exit code $code and wrote no $reports/gate.md" >&2
    exit 4
fi
cat "$reports/gate.md"
[ -n "${GITHUB_STEP_SUMMARY:-}" ] && cat "$reports/gate.md" >>"$GITHUB_STEP_SUMMARY"
if [ "$code" = 5 ] && [ "${STRICT:-true}" = false ]; then
    warning="cannot tell what the change does to some variants, or it changes the rules: see the table"
    [ -n "${GITHUB_ACTIONS:-}" ] && echo "::warning title=workbench gate::$warning"
    echo "warning: $warning (exit code 5, passed by STRICT=false)" >&2
    exit 0
fi
exit "$code"

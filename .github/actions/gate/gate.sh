#!/usr/bin/env bash
# Runs `advisor gate`, shows its result on the job's page, and ends with its status.
set -u

mapfile -t words < <(xargs printf '%s\n' <<< "$ADVISOR_GATE_ARGUMENTS")
mkdir -p "$ADVISOR_GATE_OUTPUT"
advisor gate --output "$ADVISOR_GATE_OUTPUT" "${words[@]}"
status=$?

# The page and the annotations inform; a runner that offers neither (or a fork that may not write) changes no status.
summary="$ADVISOR_GATE_OUTPUT/gate.md"
[ -f "$summary" ] && cat "$summary" >> "${GITHUB_STEP_SUMMARY:-/dev/null}"
[ -f "$ADVISOR_GATE_OUTPUT/gate.annotations" ] && cat "$ADVISOR_GATE_OUTPUT/gate.annotations"
verdict=$(sed -n 's/^ *"verdict": "\(.*\)",\{0,1\}$/\1/p' "$ADVISOR_GATE_OUTPUT/gate.json" 2>/dev/null | head -n 1)
{
  echo "verdict=$verdict"
  echo "status=$status"
} >> "${GITHUB_OUTPUT:-/dev/null}"

if [ "$status" -eq 3 ] && [ "$ADVISOR_GATE_ALLOW" = true ]; then
  echo "::warning title=Performance gate::$(printf '%s' "${verdict:-no baseline}"): this does not fail the job, and it is no pass"
  exit 0
fi
exit "$status"

#!/bin/sh
# Enqueue jobs with curl, and see when they go.
#
#   HEADGATE_URL=http://127.0.0.1:9090 HEADGATE_API_KEY=hg_… docs/examples/client.sh
#
# A server without a keys file needs no key from this machine.
set -eu

api=${HEADGATE_URL:-http://127.0.0.1:9090}/api/v1

# --fail-with-body: an error sets the exit code, and its document is printed.
headgate() {
	method=$1 path=$2
	shift 2
	curl --silent --show-error --fail-with-body --retry 3 --request "$method" "$api$path" \
		${HEADGATE_API_KEY:+--header "Authorization: Bearer $HEADGATE_API_KEY"} "$@"
	echo
}

# With the key it is safe to send the job again: it is enqueued only once.
headgate POST /jobs --header 'Content-Type: application/json' --header 'Idempotency-Key: curl-4711' --data '{
  "kind": "webhook", "tenant": "acme",
  "payload": {"url": "https://example.com/hook", "body": {"order": 4711}}
}'

# Many jobs at once, one per line.
headgate POST /jobs/batch --header 'Content-Type: application/x-ndjson' --data-binary @- <<'LINES'
{"kind":"webhook","tenant":"acme","key":"curl-1","payload":{"url":"https://example.com/hook","body":1}}
{"kind":"webhook","tenant":"acme","key":"curl-2","payload":{"url":"https://example.com/hook","body":2}}
LINES

headgate GET /queues/webhook/tenants/acme

#!/bin/sh
# Enqueue a job with curl, and see when it goes.
#
#   HEADGATE_URL=http://127.0.0.1:9090 HEADGATE_API_KEY=hg_… docs/examples/client.sh
#
# Without a file of keys the server asks this machine for none.
set -eu

api=${HEADGATE_URL:-http://127.0.0.1:9090}/api/v1

# --fail-with-body: a problem is an exit code, and its document is printed.
headgate() {
	method=$1 path=$2
	shift 2
	curl --silent --show-error --fail-with-body --retry 3 --request "$method" "$api$path" \
		${HEADGATE_API_KEY:+--header "Authorization: Bearer $HEADGATE_API_KEY"} "$@"
	echo
}

# The key makes it safe to send the same again: it is enqueued once.
headgate POST /jobs --header 'Content-Type: application/json' --header 'Idempotency-Key: curl-4711' --data '{
  "kind": "webhook", "tenant": "acme",
  "payload": {"url": "https://example.com/hook", "body": {"order": 4711}}
}'

# Many at once, a line each.
headgate POST /jobs/batch --header 'Content-Type: application/x-ndjson' --data-binary @- <<'LINES'
{"kind":"webhook","tenant":"acme","key":"curl-1","payload":{"url":"https://example.com/hook","body":1}}
{"kind":"webhook","tenant":"acme","key":"curl-2","payload":{"url":"https://example.com/hook","body":2}}
LINES

headgate GET /queues/webhook/tenants/acme

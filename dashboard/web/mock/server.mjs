// A server with the API, in memory, to work on the page without Redis. It also serves dist, with
// the policy of the Go handler.
//
//   node mock/server.mjs [--port 5174] [--tenants 40] [--read-only] [--key SECRET] [--empty] [--away] [--slow MS]
//
// POST /mock {"away":true} simulates an outage of Redis, {"down":true} one of the server.
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const { values: args } = parseArgs({
	options: {
		port: { type: 'string', default: '5174' }, tenants: { type: 'string', default: '40' }, key: { type: 'string' },
		'read-only': { type: 'boolean' }, empty: { type: 'boolean' }, away: { type: 'boolean' }, slow: { type: 'string', default: '0' },
	},
});
const knobs = { away: Boolean(args.away), down: false };

const iso = (ms) => new Date(ms).toISOString();
let seed = 7;
const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;

// --- The queues ------------------------------------------------------------

const hostile = ['<img src=x onerror=alert(1)>', 'شركة-النور', 'a/b?c#d%2e', 'x'.repeat(128), '‮evil', 'o"hara & sons'];
function tenant(i) {
	const name = ['acme', 'globex', 'initech', 'hooli', 'umbrella', 'stark', 'wayne', 'wonka'][i] ?? hostile[i - 8] ?? `tenant-${String(i).padStart(6, '0')}`;
	const perSecond = i === 0 ? 10 : [10, 10, 10, 2, 50][i % 5];
	return { name, rate: perSecond, burst: perSecond * 2, waiting: i === 0 ? 6120 : i % 3 ? Math.floor(random() * 900) : 0, done: Math.floor(random() * 1e5), weight: i % 7 ? 1 : 3, override: i === 2 };
}
const queue = (name, n, account) => ({ name, account, tenants: args.empty ? [] : Array.from({ length: n }, (_, i) => tenant(i)), pauses: [], calls: 40213, answers: { ok: 39100, throttled: 640, retryable: 300, postponed: 43, permanent: 120, unknown: 10 }, points: [], archived: 131 });
const queues = [queue('email', Number(args.tenants), 300), queue('webhook', 12, 500), queue('ai', 0, 50)];
queues[0].tenants[0] && (queues[0].tenants[0].lanes = 1);
if (!args.empty) queues[0].pauses.push({ tenant: 'wayne', by: 'provider', reason: '429 Too Many Requests', until: iso(Date.now() + 240_000) });

const pausedOf = (q, t) => q.pauses.filter((p) => (!p.tenant && !p.kind) || p.tenant === t.name);

function step(q) {
	const weights = q.tenants.reduce((sum, t) => sum + (t.waiting > 0 && !pausedOf(q, t).length ? t.weight : 0), 0);
	let sent = 0, allowed = 0;
	for (const t of q.tenants) {
		if (t.waiting <= 0 || pausedOf(q, t).length) continue;
		const now = Math.min(t.rate, (q.account * t.weight) / weights);
		t.got = now;
		allowed += now;
		const goes = Math.min(t.waiting, Math.floor(now * (0.97 + random() * 0.05) + random()));
		t.waiting -= goes;
		t.done += goes;
		sent += goes;
		if (t.waiting < 30 && t !== q.tenants[0]) t.waiting += Math.floor(random() * 400);
	}
	if (q.tenants[0] && q.tenants[0].waiting < 1000) q.tenants[0].waiting += 6000;
	const throttled = sent > 0 && random() < 0.12 ? Math.ceil(random() * 4) : 0, retry = sent > 0 && random() < 0.2 ? 1 : 0;
	const answers = { ok: Math.max(sent - throttled - retry, 0), throttled, retryable: retry };
	for (const [name, n] of Object.entries(answers)) q.answers[name] += n;
	q.calls += sent;
	q.allowed = allowed;
	q.points.push({ sent, allowed, waiting: q.tenants.reduce((sum, t) => sum + t.waiting, 0), answers });
	if (q.points.length > 600) q.points.shift();
}
for (let i = 0; i < 300; i++) for (const q of queues) step(q);
setInterval(() => knobs.away || queues.forEach(step), 1000);

const spanText = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);
function outlook(q, t) {
	const now = Date.now(), rate = t.got ?? t.rate, own = rate >= t.rate;
	const base = { queue: q.name, tenant: t.name, now: iso(now), waiting: t.waiting, rate_per_second: t.waiting ? rate : 0, confidence: t.waiting ? 'steady' : 'none' };
	if (!t.waiting) return { ...base, pause: pausedOf(q, t)[0], text: `nothing of ${t.name} waits in queue ${q.name}.` };
	const wait = (now % 997) % (1000 / rate), pause = pausedOf(q, t)[0];
	const held = own ? { limit: 'tenant', scope: `tenant ${t.name}`, rule: `${t.rate}/s`, next: iso(now + wait) } : { limit: 'account', scope: 'the whole queue', rule: `${q.account}/s`, next: iso(now + wait) };
	if (pause) return { ...base, rate_per_second: 0, pause, confidence: 'none', text: `${t.name} is paused` };
	const drains = now + (t.waiting / rate) * 1000;
	return { ...base, held_by: held, drains_at: iso(drains), text: `${t.name} is held by limit "${held.limit}" (${held.rule}), next slot in ${spanText(wait)}, ${t.waiting} waiting, done at ${new Date(drains).toTimeString().slice(0, 5)}.` };
}
function row(q, t) {
	return { ...outlook(q, t), done: t.done, weight: t.weight, limit: 'tenant', level: t.waiting ? 0.4 : t.burst, capacity: t.burst, pauses: pausedOf(q, t), overridden: Boolean(t.override) };
}
function overview(q) {
	const waiting = q.tenants.filter((t) => t.waiting > 0);
	const ends = waiting.map((t) => t.waiting / (t.got ?? t.rate));
	let top = 0;
	ends.forEach((e, i) => e > ends[top] && (top = i));
	const now = Date.now(), n = waiting.reduce((sum, t) => sum + t.waiting, 0);
	return {
		queue: q.name, now: iso(now), waiting: n, scheduled: q.name === 'email' ? 212 : 0, retry: waiting.length ? 4 : 0, pending: waiting.length ? 6 : 0, active: waiting.length ? 12 : 0, archived: q.archived, enqueued: q.calls + n,
		tenants: waiting.length, allowed_per_second: q.allowed ?? 0, confidence: n ? 'steady' : 'none', ...(n ? { drains_at: iso(now + ends[top] * 1000), top: outlook(q, waiting[top]) } : {}), pauses: q.pauses, answers: q.answers, calls: q.calls,
	};
}
const limitsOf = (q, t) => {
	const now = Date.now(), own = !t || (t.got ?? t.rate) >= t.rate, waits = t && t.waiting > 0, rate = t?.rate ?? 10;
	return [
		{ name: 'account', algorithm: 'leaky_bucket', rule: `${q.account}/s`, from: 'queue', scope: 'the whole queue', level: waits ? 0 : 1, full: 1, next: iso(now + 12), binding: Boolean(waits && !own), adapted: 0.5, lowered_by: 'quota' },
		{ name: 'tenant', per: ['tenant'], algorithm: 'token_bucket', rule: `${rate}/s`, burst: t?.burst ?? 20, from: t?.override ? 'override' : 'queue', ...(t?.override ? { actor: 'ann', reason: 'launch day', until: iso(now + 5_400_000), file: { rule: '5/s', burst: 10 } } : {}), scope: t ? `tenant ${t.name}` : 'each tenant', level: waits ? 0.4 : (t?.burst ?? 20), full: t?.burst ?? 20, next: iso(now + 84), binding: Boolean(waits && own), adapted: 1 },
		{ name: 'daily', per: ['tenant'], algorithm: 'fixed_window', rule: '10000/day', from: 'queue', scope: t ? `tenant ${t.name}` : 'each tenant', level: 3880, full: 10000, binding: false, adapted: 1, grows: 'from 50/day over 30d', ...(t ? { ramp: { rate: '707/day', from: '50/day', to: '10000/day', since: iso(now - 15 * 86_400_000), until: iso(now + 15 * 86_400_000), rejected: 0.08, held: Boolean(t.override) } } : {}) },
		{ name: 'in-flight', per: ['tenant'], algorithm: 'concurrency', rule: '20 at a time', concurrency: 20, from: 'queue', scope: t ? `tenant ${t.name}` : 'each tenant', level: 17, full: 20, binding: false, adapted: 1 },
	];
};

const fileOf = (q) => `queues:
  ${q.name}:
    kinds: [${q.name}]
    conformance: true
    limits:
      - {name: account, algorithm: leaky_bucket, rate: ${q.account}/s}
      - {name: tenant, per: [tenant], algorithm: token_bucket, rate: 10/s, burst: 20}
      - {name: daily, per: [tenant], algorithm: fixed_window, rate: 10000/day}
      - {name: in-flight, per: [tenant], concurrency: 20}
`;
/** The more a file differs from the published one, the longer the jobs wait. */
function trial(q, { file = '' }) {
	const errors = file.split('\n').flatMap((line, i) => [...line.matchAll(/rate: ([^,}\s]+)/g)].filter(([, rate]) => !/^\d+\/(s|min|h|hour|day)$/.test(rate)).map(([, rate]) => ({ field: `file:${i + 1}`, reason: `rate: "${rate}" is not a rate: write COUNT/PERIOD, such as 10/s` })));
	if (errors.length) throw new Problem(400, 'Bad Request', 'The limits file has mistakes.', errors);
	const none = { p50_seconds: 0, p95_seconds: 0, p99_seconds: 0, max_seconds: 0 }, factor = 1 + Math.abs(file.length - fileOf(q).length) / 2;
	if (q.tenants.length === 0) return { calls: 0, jobs: 0, measured: none, in_force: { ...none, limits: [] }, proposed: { ...none, limits: [] }, tenants: [], total: 0, not_counted: [], full_rate: [] };
	const waits = (x) => ({ p50_seconds: 0.084 * x, p95_seconds: 4.1 * x, p99_seconds: 61 * x, max_seconds: 340 * x });
	const limits = (x) => [{ name: 'account', used: Math.min(0.62 * x, 1), held_seconds: 120 * x, tenants: 3 }, { name: 'tenant', held_seconds: 9400 * x, tenants: q.tenants.length - 3 }, { name: 'daily', held_seconds: 0, tenants: 0 }, { name: 'in-flight', held_seconds: 0, tenants: 0 }];
	const tenants = q.tenants.slice(0, 20).map((t, i) => ({ tenant: t.name, jobs: 1 + (t.done % 9000), measured: waits(1.1 / (i + 1)), in_force: waits(1 / (i + 1)), proposed: waits(factor / (i + 1)), held_by: i ? 'tenant' : 'account', ...(i % 3 ? { would_hold_by: 'tenant' } : {}) }));
	return { from: iso(Date.now() - 86_000_000), to: iso(Date.now() - 4000), calls: 48_213, jobs: 46_877, measured: waits(1.1), in_force: { ...waits(1), limits: limits(1) }, proposed: { ...waits(factor), limits: limits(factor) }, tenants, total: q.tenants.length, not_counted: ['in-flight'], full_rate: ['account'] };
}

const reasons = [['archived', 'status # from provider: mailbox unavailable', 'email', 84], ['expired', 'expired: its deadline passed before it could go', 'email', 31], ['unknown', 'no answer within # s', 'email', 12], ['cancelled', 'cancelled by ann: wrong segment', 'email', 4]];
const outcomes = ['done', 'done', 'done', 'throttled', 'done', 'retried', 'done', 'archived'];
const answerOf = { done: 'ok', throttled: 'throttled', retried: 'retryable', archived: 'permanent' };
const events = (q, t, n) => Array.from({ length: n }, (_, i) => {
	const outcome = outcomes[i % 8];
	return { event: `${Date.now() - i * 90}-0`, at: iso(Date.now() - i * 90 - 40), queue: q.name, id: `0191f3a0-${String(9000 - i).padStart(4, '0')}-7000-8000-00000000acme`, tenant: t.name, kind: q.name, outcome, answer: answerOf[outcome], attempt: outcome === 'retried' ? 2 : 1, took_seconds: 0.03 + (i % 5) / 100, ...(outcome === 'done' ? {} : { error: outcome === 'throttled' ? '429 Too Many Requests' : '550 mailbox <b>unavailable</b>' }) };
});
function jobs(q, query) {
	const state = query.get('state') || 'waiting', from = Number(query.get('cursor') || 0), limit = Number(query.get('limit') || 50);
	const name = query.get('tenant'), total = state === 'archived' ? q.archived : 240;
	const list = [];
	for (let i = from; i < Math.min(from + limit, total); i++) {
		const [outcome, reason] = reasons[i % 4];
		list.push({ id: `0191f3a0-${String(i).padStart(4, '0')}-7000-8000-0000${state}`, queue: q.name, kind: q.name, tenant: name ?? q.tenants[i % q.tenants.length]?.name ?? 'acme', state, priority: i % 9 ? 'normal' : 'high', attempt: 1 + (i % 3), at: iso(Date.now() - i * 7000), ...(state === 'archived' ? { outcome, reason: reason.replace('#', '550') } : {}) });
	}
	const group = JSON.parse(query.get('group') ?? 'null');
	return { jobs: group ? list.filter((j) => j.outcome === group.outcome && j.reason.replace('550', '#') === group.reason) : list, ...(from + limit < total ? { next: String(from + limit) } : {}) };
}
function job(q, id) {
	const now = Date.now(), archived = id.endsWith('archived'), t = q.tenants[0] ?? tenant(0), o = outlook(q, t);
	return {
		id, queue: q.name, kind: q.name, tenant: t.name, state: archived ? 'archived' : 'waiting', ...(archived ? { outcome: 'archived' } : {}), attempt: archived ? 5 : 1, max_attempts: 5, now: iso(now), since: iso(now - 640_000), confidence: archived ? 'none' : 'steady',
		...(archived ? { error: '550 mailbox unavailable' } : { lane: 'acme', position: 1204, tenant_position: 1204, waiting: t.waiting, held_by: o.held_by, expected_at: iso(now + 120_400), drains_at: o.drains_at }),
		text: archived ? `${t.name}'s ${q.name} is archived: 550 mailbox unavailable.` : `${t.name}'s ${q.name} is held by limit "tenant" (10/s), next slot in 84 ms, 1,204 before it, goes at 14:02:11 (steady), 6,120 waiting, done at 14:12.`,
		priority: 'normal', cost: 1, costs: { recipients: 3 }, attributes: { domain: 'example.com' }, headers: { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' },
		enqueued_at: iso(now - 640_000), deadline: iso(now + 86_400_000), retention_seconds: 86400,
		payload: { to: '[redacted]', subject: 'Your order <script>alert(1)</script>', template: 'order-shipped', lines: [{ sku: 'A-1', n: 2 }, { sku: 'B-7', n: 1 }] }, payload_bytes: 412, payload_truncated: false,
		...(archived ? { result: { status: 550 } } : {}),
		timeline: [
			{ at: iso(now - 640_000), what: 'enqueued' }, { at: iso(now - 600_000), what: 'released', attempt: 1, limit: 'tenant', until: iso(now - 590_000) }, { at: iso(now - 590_000), what: 'called', attempt: 1 },
			{ at: iso(now - 589_700), what: 'answered', attempt: 1, answer: 'throttled', detail: '429 Too Many Requests' }, { at: iso(now - 589_690), what: 'paused', until: iso(now - 560_000), detail: 'Retry-After: 30' }, { at: iso(now - 589_600), what: 'parked', limit: 'account', until: iso(now - 500_000) },
			...(archived ? [{ at: iso(now - 500_000), what: 'called', attempt: 1 }, { at: iso(now - 499_800), what: 'answered', attempt: 1, answer: 'permanent', detail: '550 mailbox unavailable' }, { at: iso(now - 499_790), what: 'ended', detail: '550 mailbox unavailable' }] : []),
		],
	};
}

// --- The lab ---------------------------------------------------------------

const algorithms = [
	['fixed_window', 'Fixed window', 'policing', '5/5s', 'Counts per window of the clock; up to twice the limit around its edge.'],
	['sliding_window_log', 'Sliding window log', 'policing', '5/5s', 'Remembers each request; never more than the limit in any window.'],
	['sliding_window_counter', 'Sliding window counter', 'policing', '5/5s', 'Two counters, weighted; close to the log and much smaller.'],
	['token_bucket', 'Token bucket', 'policing', '1/s', 'A burst that was saved up, and then the rate.'],
	['leaky_bucket_policing', 'Leaky bucket, policing', 'policing', '1/s', 'Fills with each request and leaks at the rate; what does not fit is refused.'],
	['leaky_bucket_shaping', 'Leaky bucket, shaping', 'shaping', '1/s', 'Refuses nothing while there is room: each request gets its moment, evenly spaced.'],
].map(([id, title, mode, rule, describe]) => ({ id, title, mode, rule, describe, burst: 5, capacity: 20 }));
const lab = new Map();
function take(id) {
	const now = Date.now(), log = id.includes('window'), s = lab.get(id) ?? { times: [], level: 0, at: now };
	lab.set(id, s);
	let allowed, delay = 0, remaining, after = 0;
	if (log) {
		s.times = s.times.filter((t) => (id === 'fixed_window' ? Math.floor(t / 10_000) === Math.floor(now / 10_000) : t > now - 10_000));
		allowed = s.times.length < 10;
		if (allowed) s.times.push(now);
		remaining = 10 - s.times.length;
		after = allowed ? 0 : (s.times[0] + 10_000 - now) / 1000;
	} else {
		s.level = Math.max(0, s.level - (now - s.at) / 1000);
		s.at = now;
		allowed = s.level + 1 <= 10;
		if (allowed) {
			if (id === 'leaky_bucket_shaping') delay = s.level;
			s.level++;
		} else after = s.level - 9;
		remaining = Math.floor(10 - s.level);
	}
	return { at: iso(now), allowed, ...(delay ? { delay_seconds: delay } : {}), remaining, ...(after ? { retry_after_seconds: after } : {}), reset_seconds: 10 - remaining, headers: { RateLimit: `"default";r=${remaining};t=${10 - remaining}`, 'RateLimit-Policy': '"default";q=10;w=10', ...(after ? { 'Retry-After': String(Math.ceil(after)) } : {}) } };
}
const unshaped = { on: false, tenant: 'globex', sent: 0, rejected: 0 };
setInterval(() => unshaped.on && ((unshaped.sent += 10), (unshaped.rejected += 15 + Math.floor(random() * 3))), 1000);

// --- HTTP ------------------------------------------------------------------

class Problem extends Error {
	constructor(status, title, detail, errors) {
		super(title);
		Object.assign(this, { status, body: { type: 'about:blank', title, status, detail, errors } });
	}
}
const need = (value, what) => {
	if (value === undefined) throw new Problem(404, 'Not found', `there is no ${what}`);
	return value;
};
const streams = new Set();
const audit = [];
function record(entry) {
	audit.unshift({ at: iso(Date.now()), actor: 'dev', count: 0, ...entry });
	for (const s of streams) s.write(`event: audit\ndata: ${JSON.stringify({ entry: audit[0] })}\n\n`);
}
// Points begin at full seconds.
const history = (q, n) => ({ queue: q.name, step_seconds: 1, from: iso((Math.floor(Date.now() / 1000) - n) * 1000), points: q.points.slice(-n) });
const frame = () => `event: overview\ndata: ${JSON.stringify({ queues: queues.filter(() => !args.empty).map(overview), redis: knobs.away ? { ok: false, error: 'dial tcp 127.0.0.1:6379: connection refused' } : { ok: true } })}\n\n`;
setInterval(() => {
	if (!streams.size) return;
	const text = frame(), acme = queues[0].tenants[0];
	for (const q of queues) for (const s of streams) s.write(`event: history\ndata: ${JSON.stringify(history(q, 1))}\n\n`);
	for (const s of streams) s.write(acme && !knobs.away ? text + `event: finished\ndata: ${JSON.stringify({ events: events(queues[0], acme, 3), skipped: 7 })}\n\n` : text);
}, 1000);

function withReason(body) {
	if (args['read-only']) throw new Problem(403, 'Read only', 'this server changes nothing');
	if (!body.reason) throw new Problem(422, 'Invalid', 'reason: say why', [{ field: 'reason', reason: 'say why' }]);
}
const tally = (n, dry) => ({ jobs: n, by_state: { archived: n }, too_late: dry ? 0 : 2, paused: 0, dry_run: Boolean(dry) });

async function answer(method, path, query, body) {
	const [a, name, what, id, verb, last] = path;
	if (knobs.away && a !== 'session' && a !== 'openapi.json') throw new Problem(503, 'Redis does not answer', 'dial tcp 127.0.0.1:6379: connection refused');
	if (a === 'session') return { actor: args.key ? 'ann' : 'dev', scopes: ['read', 'enqueue', 'admin'], read_only: Boolean(args['read-only']), version: 'mock', demo: true, auth: args.key ? 'key' : 'none' };
	if (a === 'workers') return { workers: [{ id: 'w1', host: 'worker-1', pid: 12, version: 'mock', started: iso(Date.now() - 7e6), seen: iso(Date.now() - 900), queues: ['email', 'webhook'], kinds: ['email', 'webhook'], concurrency: 200, held: 11, sending: 3 }] };
	if (a === 'providers') return { providers: [
		{ kind: 'email', workers: 2, breaker: { opened: 1 }, quotas: [
			{ account: '', name: 'recipients/24h', limit: 50000, window_seconds: 86400, remaining: 12044, resets_at: iso(Date.now() + 3.2e7), said_at: iso(Date.now() - 1.2e6), limits: [{ queue: 'email', name: 'ses-day', rule: '50000/day', follows: true, adapted: 1, rate_per_second: 50000 / 86400, level: 11980, full: 50000 }] },
			{ account: '', name: 'recipients/s', limit: 300, window_seconds: 1, said_at: iso(Date.now() - 1.2e6), limits: [{ queue: 'email', name: 'ses-rate', rule: '300/s', follows: true, adapted: 1, rate_per_second: 300, level: 1, full: 1 }] },
		] },
		{ kind: 'webhook', workers: 2, breaker: { opened: 3 }, quotas: [] },
		{ kind: 'ai', workers: 2, quotas: [
			{ account: 'acme', name: 'requests', limit: 1500, window_seconds: 60, remaining: 310, resets_at: iso(Date.now() + 41_000), said_at: iso(Date.now() - 4000), limits: [{ queue: 'ai', name: 'requests', rule: '100/s', follows: true, adapted: 0.25, rate_per_second: 25, level: 310, full: 1000 }] },
			{ account: 'acme', name: 'tokens', limit: 400000, window_seconds: 60, remaining: 31000, resets_at: iso(Date.now() + 41_000), said_at: iso(Date.now() - 4000), limits: [{ queue: 'ai', name: 'tokens', rule: '900000/min', follows: false, adapted: 1, rate_per_second: 15000, level: 40000, full: 50000 }] },
			{ account: 'acme', name: 'images', limit: 50, said_at: iso(Date.now() - 4000), limits: [] },
		] },
	] };
	if (a === 'limits') return { files: [{ worker: 'worker-1', path: '/etc/headgate/limits.yaml', at: iso(Date.now() - 60_000), error: 'line 14: rate: "10/sek" is no rate, want COUNT/PERIOD such as 10/s' }, { worker: 'worker-2', path: '/etc/headgate/limits.yaml', at: iso(Date.now() - 3_600_000) }] };
	if (a === 'audit') return { entries: audit.slice(0, Number(query.get('limit') || 50)) };
	if (a === 'lab') {
		if (name === undefined) return { algorithms };
		if (name === 'unshaped') {
			if (method === 'POST') Object.assign(unshaped, { on: Boolean(body.on), sent: 0, rejected: 0 });
			return unshaped;
		}
		need(algorithms.find((x) => x.id === name), `algorithm ${name}`);
		if (what === 'reset') return lab.delete(name), {};
		return { results: Array.from({ length: body.n ?? 1 }, () => take(name)) };
	}
	if (a !== 'queues') throw new Problem(404, 'Not found', 'there is no such thing');
	if (name === undefined) return { queues: queues.map(overview) };
	const q = need(queues.find((x) => x.name === name), `queue ${name}`);
	if (what === undefined) return overview(q);
	if (what === 'history') return history(q, q.points.length);
	if (what === 'pause' || what === 'resume') {
		withReason(body);
		const { length } = q.pauses;
		q.pauses = q.pauses.filter((p) => p.tenant !== body.tenant || p.kind !== body.kind);
		const pause = { tenant: body.tenant, kind: body.kind, by: 'operator', reason: `dev: ${body.reason}`, ...(body.seconds ? { until: iso(Date.now() + body.seconds * 1000) } : {}) };
		if (what === 'pause') q.pauses.push(pause);
		record({ action: what, queue: q.name, tenant: body.tenant, reason: body.reason });
		return what === 'pause' ? pause : { resumed: q.pauses.length < length };
	}
	if (what === 'failures') return { groups: reasons.map(([outcome, reason, kind, jobs], i) => ({ outcome, reason, kind, jobs, tenants: Math.ceil(jobs / 9), hours: Array.from({ length: 24 }, (_, h) => Math.floor(jobs * (h === 23 - i) / 2)), job: `0191f3a0-${String(i).padStart(4, '0')}-7000-8000-0000archived`, newest: iso(Date.now() - i * 4e5), example: reason.replace('#', '550') })), total: q.archived };
	if (what === 'limits' && id === 'file') return { file: fileOf(q) };
	if (what === 'trial') return trial(q, body);
	if (what === 'limits') return { limits: limitsOf(q), kinds: [q.name], max_backlog: 100000, send_windows: { '*': '06:00-23:00 Europe/Berlin' }, overrides: q.tenants.filter((t) => t.override).map((t) => ({ tenant: t.name, ...limitsOf(q, t)[1] })) };
	if (what === 'actions') {
		withReason(body);
		const one = q.tenants.find((t) => t.name === body.tenant), n = body.verb === 'cancel' ? (one?.waiting ?? 0) : reasons.find(([outcome, reason]) => outcome === body.group?.outcome && reason === body.group.reason)?.[3] ?? 0;
		if (!body.dry_run) {
			if (one && body.verb === 'cancel') one.waiting = 0;
			record({ action: body.verb, queue: q.name, tenant: body.tenant, reason: body.reason, count: n });
		}
		return tally(n, body.dry_run);
	}
	if (what === 'jobs') {
		if (id === undefined) return jobs(q, query);
		if (method === 'GET') return job(q, id);
		withReason(body);
		record({ action: verb ?? 'delete', queue: q.name, id, reason: body.reason, count: 1 });
		return { ...tally(1), too_late: 0 };
	}
	if (what === 'tenants' && id === undefined) {
		const search = (query.get('search') ?? '').toLowerCase(), by = query.get('sort') ?? 'waiting', up = query.get('order') === 'asc' ? 1 : -1;
		const value = { tenant: (t) => t.name, waiting: (t) => t.waiting, weight: (t) => t.weight, drains: (t) => t.waiting / (t.got ?? t.rate) }[by];
		const all = q.tenants.filter((t) => t.name.toLowerCase().includes(search)).sort((x, y) => (value(x) < value(y) ? -up : value(x) > value(y) ? up : 0));
		const offset = Number(query.get('offset') || 0);
		return { now: iso(Date.now()), total: all.length, tenants: all.slice(offset, offset + Number(query.get('limit') || 50)).map((t) => row(q, t)) };
	}
	if (what === 'tenants') {
		const t = need(q.tenants.find((x) => x.name === id), `tenant ${id}`);
		if (verb === 'limits') {
			if (method === 'DELETE' || !body.dry_run) withReason(body);
			if (method === 'DELETE') {
				t.override = false;
				record({ action: 'clear', queue: q.name, tenant: id, limit: last, reason: body.reason });
				return { cleared: true };
			}
			const parsed = /^(\d+(?:\.\d+)?)\/(s|min|h)$/.exec(body.rate ?? `${t.rate}/s`);
			if (!parsed) throw new Problem(422, 'Invalid', `rate: ${body.rate} is no rate`, [{ field: 'rate', reason: `"${body.rate}" is no rate, want COUNT/PERIOD such as 10/s` }]);
			const before = outlook(q, t), changed = { ...t, got: undefined, rate: Number(parsed[1]) / { s: 1, min: 60, h: 3600 }[parsed[2]] };
			if (!body.dry_run) {
				Object.assign(t, changed, { override: true });
				record({ action: 'override', queue: q.name, tenant: id, limit: last, reason: body.reason });
			}
			return { before, after: outlook(q, changed), applied: !body.dry_run };
		}
		const now = Date.now(), rate = t.got ?? t.rate;
		return { ...row(q, t), limits: limitsOf(q, t), slots: t.waiting ? Array.from({ length: Math.min(20, t.waiting) }, (_, i) => iso(now + 84 + (i * 1000) / rate)) : [], recent: events(q, t, 12) };
	}
	throw new Problem(404, 'Not found', 'there is no such thing');
}

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; font-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
const kinds = { html: 'text/html; charset=utf-8', js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml' };

createServer(async (request, response) => {
	const url = new URL(request.url, 'http://localhost');
	const json = (status, body, kind = 'application/json') => response.writeHead(status, { 'Content-Type': kind, 'Cache-Control': 'no-store' }).end(JSON.stringify(body));
	let text = '';
	for await (const part of request) text += part;
	if (url.pathname === '/mock') return json(200, Object.assign(knobs, JSON.parse(text || '{}')));
	if (knobs.down) return request.socket.destroy();
	const api = /^\/api\/v1\/(.*)$/.exec(url.pathname);
	if (!api) {
		const file = url.pathname === '/' ? '/index.html' : url.pathname;
		try {
			const body = await readFile(fileURLToPath(new URL('../dist' + file, import.meta.url)));
			return response.writeHead(200, { 'Content-Type': kinds[file.split('.').pop()] ?? 'text/plain', 'Content-Security-Policy': policy }).end(body);
		} catch {
			return response.writeHead(404).end('no such file');
		}
	}
	if (Number(args.slow)) await new Promise((done) => setTimeout(done, Number(args.slow)));
	if (args.key && request.headers.authorization !== `Bearer ${args.key}`) return json(401, { title: 'A key is needed', status: 401, detail: 'send Authorization: Bearer KEY' }, 'application/problem+json');
	const path = api[1].split('/').map(decodeURIComponent);
	if (path[0] === 'events') {
		response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' }).write(frame());
		streams.add(response);
		response.on('close', () => streams.delete(response));
		return;
	}
	try {
		json(200, await answer(request.method, path, url.searchParams, text ? JSON.parse(text) : {}));
	} catch (e) {
		if (e instanceof Problem) json(e.status, e.body, 'application/problem+json');
		else json(500, { title: 'Broken', status: 500, detail: String(e.stack) }, 'application/problem+json');
	}
}).listen(Number(args.port), '127.0.0.1', () => console.log(`http://127.0.0.1:${args.port}/`));

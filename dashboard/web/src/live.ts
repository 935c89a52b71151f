import { computed, effect, signal } from '@preact/signals';
import { address, ApiError, keyWanted, request } from './api';
import { time } from './format';
import type { AuditEntry, Event, History, Overview } from './types';

// The stream of events from the server. EventSource cannot send a key, so the stream is read
// with fetch. It is closed while the tab is hidden, and reconnects automatically.

export type Connection = 'connecting' | 'live' | 'away' | 'paused';
export const connection = signal<Connection>('connecting');
/** Why the server does not open the stream, if it answers. */
export const refusal = signal<ApiError | null>(null);
export const queues = signal<Overview[] | null>(null);
export const redisError = signal<string | null>(null);
/** When the last overview arrived from Redis, by the browser's clock. */
export const heardAt = signal(0);

/** How many jobs each queue had ever accepted, at the times of the last minute's overviews. */
const accepted = new Map<string, [at: number, jobs: number][]>();

/** Returns how many jobs per second a queue accepted over the last minute; null until that is known. */
export function incoming(queue: string): number | null {
	const seen = accepted.get(queue) ?? [], [first, last] = [seen[0], seen.at(-1)];
	return !first || !last || last[0] - first[0] < 5000 ? null : ((last[1] - first[1]) * 1000) / (last[0] - first[0]);
}

function countAccepted(all: Overview[]): void {
	for (const q of all) {
		if (q.enqueued === undefined) continue;
		const at = time(q.now), seen = (accepted.get(q.queue) ?? []).filter(([then, jobs]) => then > at - 60_000 && then < at && jobs <= q.enqueued!);
		accepted.set(q.queue, [...seen, [at, q.enqueued]]);
	}
}

export const queueNames = computed(() => (queues.value ?? []).map((q) => q.queue));

// Times of the API are from the clock of Redis. The network can only delay them, so the largest
// difference seen is the most accurate. It shrinks slowly, to follow clocks that are adjusted.
let offset = -Infinity;
export function hearClock(now: string | undefined): void {
	const seen = time(now) - Date.now();
	if (Number.isFinite(seen)) offset = Math.max(seen, Number.isFinite(offset) ? offset - 5 : seen);
}

/** The current time by the clock of Redis. */
export const serverNow = (): number => Date.now() + (Number.isFinite(offset) ? offset : 0);

/** The time of the last tick, once a second while the tab is visible; relative times depend on it. */
export const tick = signal(serverNow());
setInterval(() => document.hidden || (tick.value = serverNow()), 1000);

let saidAt = 0;
/** True if the server has sent nothing for 8 seconds: it hangs, or the connection is lost. If Redis does not answer, the server reports that within 4 seconds. */
export const silent = computed(() => tick.value > 0 && connection.value === 'live' && Date.now() - saidAt > 8000);

interface Messages { overview: { queues: Overview[]; redis: { ok: boolean; error?: string } }; finished: { events: Event[]; skipped: number }; audit: { entry: AuditEntry }; history: History }
type Listeners = { [K in keyof Messages]: Set<(data: Messages[K]) => void> };
const listeners: Listeners = { overview: new Set(), finished: new Set(), audit: new Set(), history: new Set() };

/** Calls fn for each message of a kind until the returned function is called. */
export function onMessage<K extends keyof Messages>(kind: K, fn: (data: Messages[K]) => void): () => void {
	listeners[kind].add(fn);
	return () => listeners[kind].delete(fn);
}

function heard(kind: string, text: string): void {
	if (!(kind in listeners)) return;
	const data = JSON.parse(text);
	if (kind === 'overview') {
		saidAt = Date.now();
		const { queues: all, redis } = data as Messages['overview'];
		redisError.value = redis.ok ? null : (redis.error ?? 'no answer');
		if (redis.ok) {
			heardAt.value = Date.now();
			hearClock(all[0]?.now);
			countAccepted(all);
			queues.value = all;
		}
	}
	for (const fn of listeners[kind as keyof Messages]) fn(data);
}

/** Reads one stream until it ends. It is dead after 40 s without data: the server pings every 15 s. */
async function listen(abort: AbortController): Promise<void> {
	let watchdog = 0;
	const alive = () => {
		clearTimeout(watchdog);
		watchdog = window.setTimeout(() => abort.abort(), 40_000);
	};
	alive();
	try {
		const response = await request(address(['events']), { signal: abort.signal, headers: { Accept: 'text/event-stream' } });
		saidAt = Date.now();
		refusal.value = null;
		connection.value = 'live';
		const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
		let rest = '', kind = '', data = '';
		for (;;) {
			const { done, value } = await reader.read();
			if (done) return;
			alive();
			const lines = (rest + value).split(/\r?\n/);
			rest = lines.pop()!;
			for (const line of lines) {
				if (line === '') {
					if (data) heard(kind, data);
					kind = data = '';
				} else if (line.startsWith('event:')) kind = line.slice(6).trim();
				else if (line.startsWith('data:')) data += line.slice(5).trim();
			}
		}
	} finally {
		clearTimeout(watchdog);
	}
}

const sleep = (ms: number, signal: AbortSignal) => new Promise<void>((done) => {
	const timer = setTimeout(done, ms);
	signal.addEventListener('abort', () => (clearTimeout(timer), done()), { once: true });
});

const forbidden = (e: unknown): boolean => e instanceof ApiError && e.status === 403;

/** Keeps the stream open while the tab is visible, the server does not ask for a key, and the key allows it. */
export function start(): void {
	let run: AbortController | null = null;
	const follow = async (mine: AbortController) => {
		for (let failures = 0; !mine.signal.aborted; ) {
			const one = new AbortController();
			mine.signal.addEventListener('abort', () => one.abort(), { once: true });
			const begun = Date.now();
			let why: ApiError | null = null;
			try {
				await listen(one);
			} catch (e) {
				if (e instanceof ApiError && e.status === 401) return;
				if (e instanceof ApiError && e.status > 0) why = e;
			}
			if (mine.signal.aborted) return;
			refusal.value = why;
			if (forbidden(why)) { // the server records each such request
				connection.value = 'paused';
				return;
			}
			connection.value = 'away';
			failures = Date.now() - begun > 10_000 ? 1 : failures + 1;
			// Half of the wait is random, so that pages do not reconnect all at once.
			await sleep(Math.min(15_000, 500 * 2 ** failures) * (0.5 + Math.random() / 2), mine.signal);
		}
	};
	const change = () => {
		run?.abort();
		run = null;
		if (document.hidden || keyWanted.value || forbidden(refusal.value)) {
			connection.value = 'paused';
			return;
		}
		connection.value = 'connecting';
		tick.value = serverNow();
		run = new AbortController();
		void follow(run);
	};
	document.addEventListener('visibilitychange', change);
	addEventListener('online', change);
	let wanted: boolean | undefined;
	effect(() => {
		if (keyWanted.value !== wanted) {
			wanted = keyWanted.value;
			queueMicrotask(() => {
				refusal.value = null; // another key may be allowed to
				change();
			});
		}
	});
}

import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get } from './api';
import { connection, onMessage } from './live';
import { time } from './format';
import type { Answer, Answers, History, Overview } from './types';

// The last ten minutes of each queue, a point for each second: what the server
// remembers, and then what comes in.

const kept = 600;

export interface Series {
	x: number[];
	sent: (number | null)[];
	/** null where nothing waits: then no limit says how many. */
	allowed: (number | null)[];
	waiting: number[];
	answers: Answers[];
}

const all = new Map<string, Series>();
const last = new Map<string, { at: number; calls: number; answers: Answers }>();
/** Counts up with each point. */
export const version = signal(0);

function push(s: Series, at: number, sent: number | null, allowed: number, waiting: number, answers: Answers): void {
	s.x.push(at);
	s.sent.push(sent);
	s.allowed.push(allowed > 0 ? allowed : null);
	s.waiting.push(waiting);
	s.answers.push(answers);
	if (s.x.length > kept) for (const list of [s.x, s.sent, s.allowed, s.waiting, s.answers]) list.shift();
}

const empty = (): Series => ({ x: [], sent: [], allowed: [], waiting: [], answers: [] });

function add(q: Overview): void {
	const s = all.get(q.queue), at = time(q.now) / 1000, before = last.get(q.queue);
	if (before && at < before.at + 0.9) return; // the same reading again, or too near to divide by
	const answers = q.answers ?? {};
	last.set(q.queue, { at, calls: q.calls ?? 0, answers });
	if (!s || !before || at <= (s.x.at(-1) ?? 0)) return;
	const per = 1 / (at - before.at), since: Answers = {};
	for (const [answer, n] of Object.entries(answers)) since[answer as Answer] = Math.max(0, n - (before.answers[answer as Answer] ?? 0)) * per;
	push(s, at, Math.max(0, (q.calls ?? 0) - before.calls) * per, q.allowed_per_second, q.waiting, since);
}

onMessage('overview', ({ queues, redis }) => {
	if (!redis.ok) return;
	for (const q of queues ?? []) add(q);
	version.value++;
});

/** The series of a queue; read from the server at first, and anew after the page rested. */
export function useSeries(queue: string): Series {
	const live = connection.value === 'live';
	useEffect(() => {
		if (!live || !queue) return;
		const abort = new AbortController();
		get<History>(['queues', queue, 'history'], undefined, abort.signal).then((h) => {
			const s = empty(), from = time(h.from) / 1000;
			h.points?.forEach((p, i) => push(s, from + i * h.step_seconds, p.sent ?? null, p.allowed ?? 0, p.waiting ?? 0, p.answers ?? {}));
			all.set(queue, s);
			version.value++;
		}).catch(() => {
			if (!all.has(queue)) all.set(queue, empty()); // it fills with what comes in
		});
		return () => abort.abort();
	}, [queue, live]);
	version.value;
	return all.get(queue) ?? empty();
}

/** What came in the last n seconds, a second. */
export function recent(list: readonly (number | null)[], n: number): number {
	const part = list.slice(-n);
	return part.length ? part.reduce<number>((sum, v) => sum + (v ?? 0), 0) / part.length : 0;
}

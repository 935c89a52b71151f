import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get } from './api';
import { connection, onMessage } from './live';
import { time } from './format';
import { seesAll } from './session';
import type { Answers, History } from './types';

// The last ten minutes of each queue, with one point for each full second: at first from the
// server's history, then from the stream.

const kept = 600;

export interface Series {
	x: number[];
	sent: number[];
	/** How many waiting jobs the limits admitted; null where no job waited. */
	allowed: (number | null)[];
	answers: Answers[];
	waiting: number[];
}

const all = new Map<string, Series>();
/** Increases with each message. */
export const version = signal(0);

const empty = (): Series => ({ x: [], sent: [], allowed: [], answers: [], waiting: [] });

function add(s: Series, h: History): void {
	h.points.forEach((p, i) => {
		const at = time(h.from) / 1000 + i * h.step_seconds;
		if (at <= (s.x.at(-1) ?? 0)) return; // a duplicate
		s.x.push(at);
		s.sent.push(p.sent);
		s.allowed.push(p.allowed ?? null);
		s.answers.push(p.answers);
		s.waiting.push(p.waiting);
		if (s.x.length > kept) for (const list of [s.x, s.sent, s.allowed, s.answers, s.waiting]) list.shift();
	});
	version.value++;
}

onMessage('history', (h) => {
	const s = all.get(h.queue);
	if (s) add(s, h);
});

/** Returns the series of a queue. It is loaded again after each reconnection. */
export function useSeries(queue: string): Series {
	const live = connection.value === 'live', allowed = seesAll.value;
	useEffect(() => {
		if (!live || !queue || !allowed) return;
		const abort = new AbortController();
		get<History>(['queues', queue, 'history'], undefined, abort.signal).then((h) => {
			const s = empty();
			all.set(queue, s);
			add(s, h);
		}).catch(() => {
			if (!abort.signal.aborted && !all.has(queue)) all.set(queue, empty()); // the stream will fill it
		});
		return () => abort.abort();
	}, [queue, live, allowed]);
	version.value;
	return all.get(queue) ?? empty();
}

/** Returns by how many jobs per second the backlog grew over the last minute; negative if it shrank, null until ten seconds are known. */
export function growth(s: Series): number | null {
	const from = Math.max(0, s.x.length - 61), seconds = (s.x.at(-1) ?? 0) - (s.x[from] ?? 0);
	return seconds < 10 ? null : (s.waiting.at(-1)! - s.waiting[from]!) / seconds;
}

/** Returns the average per second over the last minute; null until a second of it is known. */
export function recent(list: readonly number[]): number | null {
	const part = list.slice(-60);
	return part.length === 0 ? null : part.reduce((sum, v) => sum + v, 0) / part.length;
}

/**
 * Returns what share of the allowed calls was sent, over those seconds of the last minute in which
 * jobs waited; null if none did. The allowed rate counts only tenants that wait. If more was sent,
 * the rest came from other tenants, whose limits allowed it too.
 */
export function shareOf(s: Series): { allowed: number; part: number; always: boolean } | null {
	const known = s.allowed.map((a, i) => [a, s.sent[i]!] as const).slice(-60).filter(([a]) => a !== null);
	const sum = (which: 0 | 1) => known.reduce((n, pair) => n + pair[which]!, 0), allowed = Math.max(sum(0), sum(1));
	return allowed > 0 ? { allowed: allowed / known.length, part: sum(1) / allowed, always: known.length === Math.min(s.x.length, 60) } : null;
}

import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get } from './api';
import { connection, onMessage } from './live';
import { time } from './format';
import type { Answers, History } from './types';

// The last ten minutes of each queue, a point for each second that is over: what the
// server remembers, and then what comes in.

const kept = 600;

export interface Series {
	x: number[];
	sent: number[];
	/** What limits let go of what waited; null where nothing waited: then no limit says how many. */
	allowed: (number | null)[];
	answers: Answers[];
}

const all = new Map<string, Series>();
/** Counts up with each point. */
export const version = signal(0);

const empty = (): Series => ({ x: [], sent: [], allowed: [], answers: [] });

function add(s: Series, h: History): void {
	h.points.forEach((p, i) => {
		const at = time(h.from) / 1000 + i * h.step_seconds;
		if (at <= (s.x.at(-1) ?? 0)) return; // it is there already
		s.x.push(at);
		s.sent.push(p.sent);
		s.allowed.push(p.allowed ?? null);
		s.answers.push(p.answers);
		if (s.x.length > kept) for (const list of [s.x, s.sent, s.allowed, s.answers]) list.shift();
	});
	version.value++;
}

onMessage('history', (h) => {
	const s = all.get(h.queue);
	if (s) add(s, h);
});

/** The series of a queue; read from the server at first, and anew after the page rested. */
export function useSeries(queue: string): Series {
	const live = connection.value === 'live';
	useEffect(() => {
		if (!live || !queue) return;
		const abort = new AbortController();
		get<History>(['queues', queue, 'history'], undefined, abort.signal).then((h) => {
			const s = empty();
			all.set(queue, s);
			add(s, h);
		}).catch(() => {
			if (!all.has(queue)) all.set(queue, empty()); // it fills with what comes in
		});
		return () => abort.abort();
	}, [queue, live]);
	version.value;
	return all.get(queue) ?? empty();
}

/** What came in the last minute, a second. */
export function recent(list: readonly (number | null)[]): number {
	const part = list.slice(-60);
	return part.reduce<number>((sum, v) => sum + (v ?? 0), 0) / (part.length || 1);
}

/**
 * How much of what limits let go was sent in the last minute, of the seconds in which something
 * waited; null where nothing did. Limits never let too much go: where more was sent than those may
 * who wait, the rest was of others, and as much was allowed.
 */
export function shareOf(s: Series): { allowed: number; part: number; always: boolean } | null {
	const known = s.allowed.map((a, i) => [a, s.sent[i]!] as const).slice(-60).filter(([a]) => a !== null);
	const sum = (which: 0 | 1) => known.reduce((n, pair) => n + pair[which]!, 0), allowed = Math.max(sum(0), sum(1));
	return allowed > 0 ? { allowed: allowed / known.length, part: sum(1) / allowed, always: known.length === Math.min(s.x.length, 60) } : null;
}

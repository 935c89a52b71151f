import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, get, keyWanted } from './api';
import { hearClock, onMessage } from './live';

export interface Resource<T> {
	/** The last response; kept while the next one is loading and when it fails. */
	data: T | null;
	error: unknown;
	loading: boolean;
	refresh: () => void;
}

type Query = Parameters<typeof get>[1];

/**
 * Loads data from the API: at first, when its address changes, and every `every` seconds while
 * the tab is visible. There is one request at a time, and after one that the key does not allow
 * no further ones by itself: the server records each of those.
 */
export function useResource<T extends object>(segments: readonly string[] | null, query?: Query, every = 0, read?: (json: string) => T): Resource<T> {
	const [state, set] = useState<{ of: string; data: T | null; error: unknown; loading: boolean }>({ of: '', data: null, error: null, loading: true });
	const again = useRef<() => void>(() => {});
	const of = segments ? JSON.stringify([segments, query]) : '';
	const place = segments ? JSON.stringify(segments) : '';
	const wanted = keyWanted.value;
	const previous = useRef('');
	useEffect(() => {
		if (!segments || wanted) return;
		const abort = new AbortController();
		let timer = 0, busy = false, soon = false, forbidden = false;
		// The old page of a list stays until its next page has loaded; another list is cleared at once.
		const same = previous.current === place;
		previous.current = place;
		set((s) => ({ of, data: same ? s.data : null, error: null, loading: true }));
		const ask = async () => {
			clearTimeout(timer);
			if (busy) {
				soon = true;
				return;
			}
			busy = true;
			forbidden = false;
			try {
				const data = await get<T>(segments, query, abort.signal, read);
				hearClock((data as { now?: string }).now);
				set({ of, data, error: null, loading: false });
			} catch (error) {
				if (abort.signal.aborted) return;
				forbidden = error instanceof ApiError && error.status === 403;
				set((s) => ({ ...s, error, loading: false }));
			}
			busy = false;
			if (soon) {
				soon = false;
				void ask();
			} else if (every > 0 && !forbidden) {
				timer = window.setTimeout(() => document.hidden || void ask(), every * 1000);
			}
		};
		const shown = () => document.hidden || every <= 0 || forbidden || void ask();
		document.addEventListener('visibilitychange', shown);
		again.current = () => void ask();
		void ask();
		return () => {
			abort.abort();
			clearTimeout(timer);
			document.removeEventListener('visibilitychange', shown);
		};
	}, [of, every, wanted]);
	// Reload at once after a change by an operator, here or elsewhere.
	useEffect(() => onMessage('audit', () => again.current()), []);
	return { data: state.data, error: state.error, loading: state.loading || state.of !== of, refresh: () => again.current() };
}

/** Returns the value once it has not changed for `ms` milliseconds. */
export function useSettled<T>(value: T, ms: number): T {
	const [settled, set] = useState(value);
	useEffect(() => {
		const timer = setTimeout(() => set(value), ms);
		return () => clearTimeout(timer);
	}, [value, ms]);
	return settled;
}

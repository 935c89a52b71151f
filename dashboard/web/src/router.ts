import { computed, signal } from '@preact/signals';

// Routes are in the hash, so that one file serves the page under any prefix. Names of tenants
// and ids of jobs are escaped in them.

const hash = signal(location.hash);
addEventListener('hashchange', () => (hash.value = location.hash));

export interface Route { path: string[]; query: URLSearchParams }

function decode(segment: string): string {
	try {
		return decodeURIComponent(segment);
	} catch {
		return segment; // probably typed by hand: take it literally
	}
}

export const route = computed<Route>(() => {
	const [path = '', query = ''] = hash.value.replace(/^#\/?/, '').split('?', 2);
	return { path: path.split('/').filter(Boolean).map(decode), query: new URLSearchParams(query) };
});

type Query = Record<string, string | number | undefined>;

/** href('queues', 'email', 'tenants', 'a/b') is "#/queues/email/tenants/a%2Fb". */
export function href(...segments: string[]): string {
	return '#/' + segments.map(encodeURIComponent).join('/');
}

export function go(to: string): void {
	location.hash = to;
}

/** Changes the query of the route without a new history entry. */
export function setQuery(changes: Query): void {
	const { path, query } = route.value;
	for (const [name, value] of Object.entries(changes)) {
		if (value === undefined || value === '') query.delete(name);
		else query.set(name, String(value));
	}
	const text = query.toString();
	history.replaceState(null, '', href(...path) + (text && '?' + text));
	hash.value = location.hash;
}

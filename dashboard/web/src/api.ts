import { signal } from '@preact/signals';

// The one place that talks to the server. Answers that are no success become an
// ApiError with the words of the server; no answer at all is one of status 0.

const base = new URL('api/v1/', document.baseURI.replace(/[?#].*$/, ''));
const stored = 'headgate-key';

/** Set while the server wants a key; the page then asks for one. */
export const keyWanted = signal(false);

let key = sessionStorage.getItem(stored) ?? '';

export function setKey(text: string): void {
	key = text;
	if (text) sessionStorage.setItem(stored, text);
	else sessionStorage.removeItem(stored);
}

export class ApiError extends Error {
	constructor(readonly status: number, readonly title: string, readonly detail: string, readonly fields: Record<string, string> = {}) {
		super(detail || title);
	}
}

/** The server is there, but its Redis, or the way to it, is not. */
export const isAway = (e: unknown): boolean => e instanceof ApiError && (e.status === 0 || e.status === 502 || e.status === 503 || e.status === 504);

export function address(segments: readonly string[], query?: Record<string, string | number | boolean | undefined>): URL {
	for (const segment of segments) {
		// Browsers resolve these away, escaped or not, and another thing would be asked for.
		if (segment === '.' || segment === '..' || segment === '') {
			throw new ApiError(400, 'Cannot be addressed', `A name of “${segment}” cannot stand in an address. Use the command line for it.`);
		}
	}
	const url = new URL(segments.map(encodeURIComponent).join('/'), base);
	for (const [name, value] of Object.entries(query ?? {})) if (value !== undefined && value !== '') url.searchParams.set(name, String(value));
	return url;
}

async function problem(response: Response): Promise<ApiError> {
	let body: { title?: string; detail?: string; errors?: { field: string; reason: string }[] } = {};
	try {
		body = await response.json();
	} catch {
		// Something on the way answered, not the API: its status has to do.
	}
	const fields = Object.fromEntries((body.errors ?? []).map((e) => [e.field, e.reason]));
	return new ApiError(response.status, body.title ?? `The server answered ${response.status}`, body.detail ?? '', fields);
}

export async function request(url: URL, init: RequestInit = {}): Promise<Response> {
	const headers = new Headers(init.headers);
	if (key) headers.set('Authorization', `Bearer ${key}`);
	let response: Response;
	try {
		response = await fetch(url, { ...init, headers, cache: 'no-store', credentials: 'same-origin', redirect: 'error' });
	} catch (e) {
		if (init.signal?.aborted) throw e;
		throw new ApiError(0, 'The server does not answer', '');
	}
	if (response.status === 401) keyWanted.value = true;
	if (!response.ok) throw await problem(response);
	return response;
}

type Query = Parameters<typeof address>[1];

export async function get<T>(segments: readonly string[], query?: Query, signal?: AbortSignal): Promise<T> {
	return (await request(address(segments, query), { signal: signal ?? null })).json();
}

export async function send<T>(method: 'POST' | 'PUT' | 'DELETE', segments: readonly string[], body: unknown, signal?: AbortSignal): Promise<T> {
	const response = await request(address(segments), {
		method, body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' }, signal: signal ?? null,
	});
	return response.status === 204 ? (undefined as T) : response.json();
}

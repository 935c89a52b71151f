import { signal } from '@preact/signals';

// All requests to the server. An error response becomes an ApiError with the server's title
// and detail; if there is no response, its status is 0.

const base = new URL('api/v1/', document.baseURI.replace(/[?#].*$/, ''));
const stored = 'headgate-key';

/** True while the server requires a key; the page then asks for one. */
export const keyWanted = signal(false);

let key = sessionStorage.getItem(stored) ?? '';

export function setKey(text: string): void {
	key = text;
	if (text) sessionStorage.setItem(stored, text);
	else sessionStorage.removeItem(stored);
}

/** One error in a request. A field can have several. */
export interface FieldError { field: string; reason: string }

export class ApiError extends Error {
	constructor(readonly status: number, readonly title: string, readonly detail: string, readonly fields: readonly FieldError[] = []) {
		super(detail || title);
	}
}

/** Reports whether the server, or Redis behind it, cannot be reached. */
export const isAway = (e: unknown): boolean => e instanceof ApiError && (e.status === 0 || e.status === 502 || e.status === 503 || e.status === 504);

export function address(segments: readonly string[], query?: Record<string, string | number | boolean | undefined>): URL {
	for (const segment of segments) {
		// Browsers resolve such segments even if they are escaped, and would request another address.
		if (segment === '.' || segment === '..' || segment === '') {
			throw new ApiError(400, 'Name not supported', `A URL cannot contain the name “${segment}”. Use the command line instead.`);
		}
	}
	const url = new URL(segments.map(encodeURIComponent).join('/'), base);
	for (const [name, value] of Object.entries(query ?? {})) if (value !== undefined && value !== '') url.searchParams.set(name, String(value));
	return url;
}

async function problem(response: Response): Promise<ApiError> {
	let body: { title?: string; detail?: string; errors?: FieldError[] } = {};
	try {
		body = await response.json();
	} catch {
		// The response is not from the API but, for example, from a proxy: only its status is known.
	}
	return new ApiError(response.status, body.title ?? `The server answered ${response.status}`, body.detail ?? '', body.errors);
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

export async function get<T>(segments: readonly string[], query?: Query, signal?: AbortSignal, read: (json: string) => T = JSON.parse): Promise<T> {
	return read(await (await request(address(segments, query), { signal: signal ?? null })).text());
}

export async function send<T>(method: 'POST' | 'PUT' | 'DELETE', segments: readonly string[], body: unknown, signal?: AbortSignal): Promise<T> {
	const response = await request(address(segments), {
		method, body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' }, signal: signal ?? null,
	});
	return response.status === 204 ? (undefined as T) : response.json();
}

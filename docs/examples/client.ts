// Enqueue jobs over HTTP, with fetch: in node, a browser, Deno or Bun.
//
//   HEADGATE_URL=http://127.0.0.1:9090 HEADGATE_API_KEY=hg_… npx tsx client.ts
//
// A server without a keys file needs no key from this machine.

export interface Job {
	kind: string;
	tenant: string;
	payload: unknown;
	key?: string;
	queue?: string;
	priority?: 'high' | 'normal' | 'low';
	at?: string;
	deadline?: string;
	cost?: number;
}

export interface Receipt {
	id: string;
	queue: string;
	existing: boolean;
	state: string;
	durability: 'primary' | 'replicated';
	position?: number;
	expected_at?: string;
	held_by?: { limit: string; scope: string; rule: string; next?: string };
	confidence: 'steady' | 'rough' | 'none';
	text?: string;
}

export interface BatchResult {
	accepted: number;
	existing: number;
	refused: number;
	results: { index: number; id?: string; error?: { field?: string; reason: string; code: string } }[];
}

/** An error response, as defined by RFC 9457. */
export class Problem extends Error {
	status: number;
	code: string;
	errors: { field?: string; reason: string }[];

	constructor(status: number, document: { title: string; detail?: string; code?: string; errors?: { field?: string; reason: string }[] }) {
		super(document.detail ?? document.title);
		this.status = status;
		this.code = document.code ?? '';
		this.errors = document.errors ?? [];
	}
}

export class Headgate {
	private base: string;
	private key: string | undefined;

	constructor(url: string, key?: string) {
		this.base = url.replace(/\/$/, '') + '/api/v1';
		this.key = key;
	}

	async call<T>(method: string, path: string, body?: string, headers: Record<string, string> = {}, tries = 4): Promise<T> {
		if (this.key) headers = { ...headers, Authorization: `Bearer ${this.key}` };
		for (let attempt = 1; ; attempt++) {
			const response = await fetch(this.base + path, { method, headers, body: body ?? null });
			if (response.ok) return (await response.json()) as T;
			// Over a limit, or Redis is down: Retry-After says when to try again.
			if ([429, 503, 504].includes(response.status) && attempt < tries) {
				const seconds = Number(response.headers.get('Retry-After') ?? 1);
				await new Promise((done) => setTimeout(done, seconds * 1000));
				continue;
			}
			throw new Problem(response.status, await response.json());
		}
	}

	/** Enqueues a job. Sent again with the same key, it is enqueued only once. */
	enqueue(job: Job, key: string): Promise<Receipt> {
		return this.call('POST', '/jobs', JSON.stringify(job), { 'Content-Type': 'application/json', 'Idempotency-Key': key });
	}

	enqueueMany(jobs: Job[]): Promise<BatchResult> {
		const lines = jobs.map((job) => JSON.stringify(job) + '\n').join('');
		return this.call('POST', '/jobs/batch', lines, { 'Content-Type': 'application/x-ndjson' });
	}

	job(queue: string, id: string): Promise<{ state: string; text: string }> {
		return this.call('GET', `/queues/${encodeURIComponent(queue)}/jobs/${encodeURIComponent(id)}`);
	}
}

declare const process: { env: Record<string, string | undefined> };

const headgate = new Headgate(process.env.HEADGATE_URL ?? 'http://127.0.0.1:9090', process.env.HEADGATE_API_KEY);
const hook = { url: 'https://example.com/hook', body: { order: 4711 } };

const receipt = await headgate.enqueue({ kind: 'webhook', tenant: 'acme', payload: hook }, 'ts-4711');
console.log('enqueued', receipt.id, receipt.state, receipt.expected_at ?? '');
const again = await headgate.enqueue({ kind: 'webhook', tenant: 'acme', payload: hook }, 'ts-4711');
console.log('again', again.id === receipt.id, again.existing);

const jobs = [0, 1, 2].map((n) => ({ kind: 'webhook', tenant: 'acme', key: `ts-${n}`, payload: { ...hook, body: n } }));
const result = await headgate.enqueueMany(jobs);
console.log('batch', result.accepted + result.existing, result.refused);

console.log('why', (await headgate.job(receipt.queue, receipt.id)).text);
try {
	await headgate.enqueue({ kind: 'webhook', tenant: 'acme', payload: { body: 1 } }, 'ts-bad');
} catch (e) {
	if (!(e instanceof Problem)) throw e;
	console.log('refused', e.status, e.code, e.errors[0]?.field);
}

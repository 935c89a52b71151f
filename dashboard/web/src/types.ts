// The types of the API, with its names. Times are RFC 3339 and absent when not known.

export type Confidence = 'steady' | 'rough' | 'none';
export type Answer = 'ok' | 'throttled' | 'retryable' | 'postponed' | 'permanent' | 'unknown';
export type Answers = Partial<Record<Answer, number>>;

export interface Hold { limit: string; scope: string; rule: string; next?: string }
export interface Pause { tenant?: string; kind?: string; endpoint?: string; until?: string; by: string; reason: string; tried?: boolean; since?: string; probing?: boolean }

export interface Fault { what: string; reason: string; at?: string }

export interface Outlook {
	queue: string; tenant: string; now: string; waiting: number; rate_per_second: number;
	held_by?: Hold; drains_at?: string; confidence: Confidence; text: string;
	pause?: Pause;
	/** Why no worker takes the jobs. */
	unserved?: string;
}
export interface Overview {
	queue: string; now: string; waiting: number; tenants: number; allowed_per_second: number; drains_at?: string; confidence: Confidence;
	top?: Outlook; pauses?: Pause[] | null; unserved?: string[]; moving?: string;
	// Figures of the whole queue: absent for keys that are limited to some tenants.
	scheduled?: number; retry?: number; pending?: number; active?: number; archived?: number; enqueued?: number; stored?: number; stored_bytes?: number; answers?: Answers | null; calls?: number;
	faults?: Fault[] | null;
}
export interface TenantRow extends Outlook {
	done: number; stored: number; stored_bytes: number; weight: number; limit: string; level: number; capacity: number; pauses?: Pause[] | null; overridden: boolean;
	/** What the limits file sets for this tenant alone, by name. */
	own?: Record<string, string>;
}
/** Who used a queue: successful calls per second, a number for each of times. */
export interface Shares { from?: string; times: string[]; tenants: { tenant: string; share: number; sent_per_second: number; per_second: number[] }[]; others: number[] }
export interface TenantPage { now: string; total: number; tenants: TenantRow[] }
export interface LimitState {
	name: string; per?: string[] | null; unit?: string; queues?: string[]; for?: 'jobs' | 'direct'; algorithm: string; rule: string; burst?: number; capacity?: number; concurrency?: number;
	from: string; until?: string; actor?: string; reason?: string; scope: string; level: number; full: number; next?: string;
	binding: boolean; paused_until?: string; adapted: number; lowered_by?: 'quota' | 'refusals'; grows?: string;
	ramp?: { rate: string; from: string; to: string; since?: string; until?: string; rejected: number; held: boolean };
	file?: { rule?: string; burst?: number; capacity?: number; concurrency?: number };
	/** The override that is not in force, and why. Only until, actor and reason are its own. */
	not_in_force?: string;
}
export interface Event {
	event: string; at: string; id: string; queue: string; tenant: string; kind: string; outcome: string; answer?: Answer;
	attempt: number; took_seconds: number; error?: string;
}
export interface Tenant extends TenantRow { limits?: LimitState[] | null; slots?: string[] | null; window_opens?: string; recent?: Event[] | null }

export interface JobRow {
	id: string; queue: string; kind: string; tenant: string; state: string; outcome?: string; priority: string; attempt: number; at?: string; reason?: string;
}
export interface JobPage { jobs: JobRow[]; next?: string }
export interface JobEvent { at: string; what: string; attempt?: number; limit?: string; until?: string; answer?: Answer; detail?: string }
export interface Job {
	id: string; queue: string; kind: string; tenant: string; state: string; outcome?: string; attempt: number; max_attempts: number; error?: string;
	progress?: { percent: number; text: string; at: string };
	since?: string; until?: string; now: string; lane?: string; position?: number; tenant_position?: number; waiting?: number;
	held_by?: Hold; full?: Hold; pause?: Pause; unserved?: string; window_opens?: string; expected_at?: string; confidence: Confidence; drains_at?: string; text: string;
	priority: string; cost: number; costs?: Record<string, number>; attributes?: Record<string, string>; headers?: Record<string, string>;
	enqueued_at?: string; deadline?: string; retention_seconds: number; payload?: string | undefined; payload_bytes: number; payload_truncated: boolean;
	result?: string | undefined; locked?: string; timeline?: JobEvent[] | null;
}
export interface Tally { jobs: number; by_state?: Record<string, number> | null; too_late: number; paused: number; dry_run: boolean }

export interface Worker {
	id: string; host: string; pid: number; version: string; started: string; seen: string; queues: string[]; kinds: string[];
	concurrency: number; held: number; sending: number; limits_file?: { path: string; error?: string };
}
/** A limit of an account, as far as its provider reports it. */
/** What a limit assumes that counts the same as a quota. */
export interface QuotaLimit { queue: string; name: string; rule: string; follows: boolean; adapted: number; rate_per_second: number; level?: number; full?: number; next?: string }
/** What a provider said of a limit of its own. */
export interface Quota {
	account: string; name: string; limit?: number; window_seconds?: number; remaining?: number; resets_at?: string; said_at?: string;
	/** Absent if they could not be read. */
	limits?: QuotaLimit[];
}
export interface Provider {
	kind: string; workers: number;
	breaker?: { opened: number };
	quotas?: Quota[] | null;
}
export interface History { queue: string; step_seconds: number; from: string; points: { sent: number; allowed?: number; waiting: number; answers: Answers }[] }
export interface ViolationCause { what: 'run' | 'changed' | 'ended' | 'lost' | 'unknown'; at: string; actor?: string; reason?: string; before?: string; after?: string }
export interface ConformanceHour { at: string; most: number; allowed: number; over?: { at: string; took: number; allowed: number; causes: ViolationCause[] } }
export interface ConformanceBucket { limit: string; values: Record<string, string>; window_seconds?: number; hours: ConformanceHour[] }
/** How calls kept to the limits of a queue. */
export interface Conformance { counts: boolean; from: string; to: string; buckets: ConformanceBucket[]; total: number; missed: string[] }
/** For how long jobs waited until their first call. */
export interface Waiting { p50_seconds: number; p95_seconds: number; p99_seconds: number; max_seconds: number }
export interface TrialLimit { name: string; used?: number; held_seconds: number; tenants: number }
export interface TrialTenant { tenant: string; jobs: number; measured: Waiting; in_force: Waiting; proposed: Waiting; held_by?: string; would_hold_by?: string }
/** How jobs waited, and how they would have waited under other limits. */
export interface Trial {
	from?: string; to?: string; calls: number; jobs: number; measured: Waiting; in_force: Waiting & { limits: TrialLimit[] }; proposed: Waiting & { limits: TrialLimit[] };
	tenants: TrialTenant[]; total: number; not_counted: string[]; full_rate: string[];
}
export interface FailureKey { outcome: string; kind: string; reason: string }
export interface FailureGroup extends FailureKey { jobs: number; tenants: number; newest: string; example: string; job: string; hours: number[] }
export interface Override extends LimitState { tenant: string }
export interface Limits {
	limits: LimitState[]; kinds: string[]; max_backlog?: number; max_backlog_bytes?: number; max_queue?: number; max_queue_bytes?: number; max_retention_seconds?: number; conformance: boolean; send_windows?: Record<string, string> | null;
	overrides?: Override[] | null;
}
export interface Reload { worker: string; path: string; at: string; error?: string }
/** Programs of a later version record others, too. */
export type AuditAction = 'cancel' | 'run' | 'wake' | 'retry' | 'delete' | 'pause' | 'resume' | 'override' | 'clear' | 'publish' | 'unregister' | 'keys' | 'refused'
	| 'enable' | 'periodic add' | 'periodic remove' | 'periodic pause' | 'periodic resume';
export interface AuditEntry {
	at: string; actor: string; action: AuditAction; queue: string; tenant?: string; kind?: string; state?: string; id?: string; limit?: string; endpoint?: string;
	reason?: string; until?: string; before?: Record<string, string>; after?: Record<string, string>; count: number;
}
export interface Session {
	actor: string; scopes: string[]; tenants?: string[]; queues?: string[]; kinds?: string[]; read_only: boolean; version: string; demo: boolean; auth: 'none' | 'key';
}
export interface LimitPreview { before: Outlook; after: Outlook; applied: boolean }
export interface Algorithm { id: string; title: string; mode: string; rule: string; burst?: number; capacity?: number; describe: string }
export interface Take {
	at: string; allowed: boolean; delay_seconds?: number; remaining: number; retry_after_seconds?: number; reset_seconds?: number;
	headers?: Record<string, string>;
}
/** sent counts the calls that the provider accepted; rejected ones are not included. */
export interface Unshaped { on: boolean; tenant: string; sent: number; rejected: number }

import { useState } from 'preact/hooks';
import { Changes } from './activity';
import { askChange, askClear, changeable } from '../change';
import { bytes, num, relative, side, span, algorithmName, time } from '../format';
import { useResource } from '../hooks';
import { tick } from '../live';
import { href } from '../router';
import { mayChange, seesAll, seesFleet } from '../session';
import type { Limits, LimitState, Override, Reload, TenantPage, TenantRow } from '../types';
import { At, Card } from '../ui/card';
import { Icon } from '../ui/icon';
import { Menu } from '../ui/menu';
import { Name, TenantLink } from '../ui/name';
import { EmptyState, Loaded } from '../ui/states';
import { Paging, Table, type Column } from '../ui/table';

/** Describes what a limit admits. */
export function admits(l: { rule?: string | undefined; burst?: number | undefined; capacity?: number | undefined; concurrency?: number | undefined }): string {
	if (l.concurrency) return `${num(l.concurrency)} at once`;
	let text = l.rule ?? '';
	if (l.burst) text += `, burst ${num(l.burst)}`;
	if (l.capacity) text += `, capacity ${num(l.capacity)}`;
	return text;
}

/** The limits of a queue, overrides by operators, and the audit log. */
export function LimitsPage({ queue }: { queue: string }) {
	const limits = useResource<Limits>(['queues', queue, 'limits'], undefined, 5);
	return (
		<div class="stack">
			<Files />
			<Loaded of={limits}>{(l) => (
				<>
					<InForce queue={queue} l={l} />
					<Own queue={queue} />
					<Overrides queue={queue} l={l} />
				</>
			)}</Loaded>
			<Changes queue={queue} />
		</div>
	);
}

/** The workers whose last reload of their limits file failed. */
function Files() {
	const reload = useResource<{ files: Reload[] | null }>(seesFleet.value ? ['limits', 'reload'] : null, undefined, 10);
	const bad = (reload.data?.files ?? []).filter((f) => f.error);
	if (bad.length === 0) return null;
	return (
		<section class="notice bad files" role="alert">
			<p><Icon name="warn" /> <b>A limits file is not in effect.</b> The limits that were in effect stay.</p>
			{bad.map((f) => <div key={f.worker + f.path}><p><code><bdi>{f.path}</bdi></code> on <bdi>{f.worker}</bdi>, {relative(time(f.at), tick.value)}</p><pre><bdi>{f.error}</bdi></pre></div>)}
		</section>
	);
}

function InForce({ queue, l }: { queue: string; l: Limits }) {
	const windows = Object.entries(l.send_windows ?? {});
	const caps: [string, string][] = [];
	if (l.max_backlog) caps.push(['Most jobs of a tenant', num(l.max_backlog)]);
	if (l.max_backlog_bytes) caps.push(['Largest size of its jobs', bytes(l.max_backlog_bytes)]);
	if (l.max_queue) caps.push(['Most jobs of the queue', num(l.max_queue)]);
	if (l.max_queue_bytes) caps.push(['Largest size of all jobs', bytes(l.max_queue_bytes)]);
	if (l.max_retention_seconds) caps.push(['Longest retention', span(l.max_retention_seconds * 1000)]);
	return (
		<Card title="In force for all tenants" end={l.kinds.length > 0 && <span class="hint end">Kinds: <bdi>{l.kinds.join(', ')}</bdi></span>}>
			{(l.limits ?? []).length === 0
				? <EmptyState title="No limits" icon="idle">Jobs of this queue go as fast as workers can send them.</EmptyState>
				: <Table<LimitState> caption="Limits of the queue" rows={l.limits} id={(r) => r.name} columns={[
					{ label: 'Limit', cell: (r) => <b><Name>{r.name}</Name></b> },
					{ label: 'Per', cell: (r) => <>{r.per?.length ? r.per.join(' and ') : 'queue, shared'}{r.queues && <small class="why">one budget of <bdi>{r.queues.join(', ')}</bdi></small>}{r.for && <small class="why">{side(r)}</small>}</> },
					{ label: 'Algorithm', cell: (r) => (r.concurrency ? 'concurrency' : algorithmName(r.algorithm)) },
					{ label: 'Admits', figure: true, cell: (r) => <>{admits(r)}{r.unit && <small> {r.unit}</small>}{r.grows && <small class="why">{r.grows}</small>}</> },
				]} />}
			{seesAll.value && (
				<p class="hint actions">
					{l.conformance && <a href={href('queues', queue, 'conformance')}>Whether calls kept to them</a>}
					<a href={href('queues', queue, 'trial')}>Try other limits</a>
				</p>
			)}
			{(caps.length > 0 || windows.length > 0) && (
				<dl class="facts below">
					{caps.map(([label, text]) => <div key={label}><dt>{label}</dt><dd>{text}</dd></div>)}
					{windows.map(([kind, text]) => <div key={kind}><dt>Send window{kind !== '*' && <> of <bdi>{kind}</bdi></>}</dt><dd>{text}</dd></div>)}
				</dl>
			)}
		</Card>
	);
}

/** What the limits file sets for single tenants. */
function Own({ queue }: { queue: string }) {
	const [offset, setOffset] = useState(0);
	const page = useResource<TenantPage>(['queues', queue, 'tenants'], { only: 'own', sort: 'tenant', order: 'asc', offset, limit: 20 }, 10);
	return (
		<Card title="In the limits file for single tenants">
			<Loaded of={page}>{({ tenants, total }) => (total === 0
				? <p class="hint">None: the limits above are those of all tenants.</p>
				: (
					<>
						<Table<TenantRow> caption="Limits of single tenants" rows={tenants} id={(t) => t.tenant} busy={page.loading} columns={[
							{ label: 'Tenant', cell: (t) => <TenantLink queue={queue} tenant={t.tenant} /> },
							{ label: 'Differs in', cell: (t) => Object.entries(t.own ?? {}).map(([name, text], i) => <span key={name}>{i > 0 && '; '}<bdi>{name}</bdi>: <b>{text}</b></span>) },
						]} />
						<Paging offset={offset} limit={20} total={total} go={setOffset} />
					</>
				))}
			</Loaded>
		</Card>
	);
}

function Overrides({ queue, l }: { queue: string; l: Limits }) {
	const columns: Column<Override>[] = [
		{ label: 'Tenant', cell: (o) => <TenantLink queue={queue} tenant={o.tenant} /> },
		{ label: 'Limit', cell: (o) => <Name>{o.name}</Name> },
		{ label: 'File', cell: (o) => (o.not_in_force ? admits(o) : o.file ? <s>{admits(o.file)}</s> : '–') },
		{ label: 'Override', cell: (o) => (o.not_in_force ? <bdi>{o.not_in_force}</bdi> : admits(o)) },
		{ label: 'In force', cell: (o) => <b>{admits(o)}</b> },
		{ label: 'Until', cell: (o) => (o.until ? <At at={o.until} now={tick.value} title={relative(time(o.until), tick.value)} /> : 'cleared') },
		{ label: 'By', cell: (o) => <span><bdi>{o.actor}</bdi><small class="why"><bdi>{o.reason}</bdi></small></span> },
	];
	if (mayChange.value) {
		columns.push({
			label: 'Actions', quiet: true, cell: (o) => (
				<Menu label={`Actions on ${o.name} of ${o.tenant}`}>
					<button type="button" onClick={() => askChange(queue, o.tenant, o.name)}>Change…</button>
					<button type="button" onClick={() => askClear(queue, o.tenant, o)}>Clear…</button>
				</Menu>
			),
		});
	}
	const overrides = l.overrides ?? [];
	return (
		<Card title="Overrides">
			{overrides.length === 0
				? <p class="hint">No overrides: the limits file applies to all tenants.</p>
				: <Table caption="Overrides" rows={overrides} id={(o) => `${o.tenant} ${o.name}`} columns={columns} />}
			{mayChange.value && l.limits.some(changeable) && <ChangeOne queue={queue} />}
		</Card>
	);
}

/** Asks for the tenant whose limit is to be changed. */
function ChangeOne({ queue }: { queue: string }) {
	const [tenant, setTenant] = useState('');
	const submit = (e: Event) => {
		e.preventDefault();
		if (tenant) askChange(queue, tenant);
	};
	return (
		<form class="one" onSubmit={submit}>
			<label>Change a limit of <input value={tenant} onInput={(e) => setTenant(e.currentTarget.value)} placeholder="tenant" maxLength={128} autocomplete="off" spellcheck={false} required /></label>
			<button type="submit">Change…</button>
		</form>
	);
}
